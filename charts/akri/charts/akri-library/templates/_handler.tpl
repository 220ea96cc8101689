{{/* The ServiceAccount, DaemonSet and NetworkPolicy of a Discovery Handler. Empty if the agent runs the handler. */}}
{{- define "akri.handler" -}}
{{- if not (include "akri.inAgent" .) }}
{{- $context := . }}
{{- $needs := dict }}
{{- range include "akri.handlers" . | fromYamlArray }}
{{- if eq $context.Chart.Name (printf "handler-%s" .name) }}{{ $needs = . }}{{ end }}
{{- end -}}
{{ include "akri.serviceAccount" . }}
---
{{ include "akri.daemonSet" (dict
  "context" .
  "name" (printf "%s-daemonset" (include "akri.name" .))
  "metricsPort" (ternary .Values.metricsPort nil (.Values.hostNetwork | default false))
  "env" (include "akri.handlerEnv" (list . $needs "value"))
  (ternary "reads" "writes" (.Values.useNetworkConnection | default false)) (list "handlers")
  "volumeMounts" (include "akri.handlerMounts" $needs)
  "volumes" (include "akri.handlerVolumes" (list . $needs))) }}
---
{{ include "akri.networkPolicy" (dict
  "context" .
  "serves" (ternary (list (dict "port" "discovery" "components" (list "discovery-operator"))) list (.Values.useNetworkConnection | default false))
  "calls" (ternary (list "devices") list ($needs.network | default false))) }}
{{- end }}
{{- end }}

{{/* The environment variables of a handler: list of context, entry of akri.handlers, and "value" or
     "agentValue". A list is joined with commas. An empty value sets no variable. */}}
{{- define "akri.handlerEnv" -}}
{{- $context := index . 0 }}
{{- $handler := index . 1 }}
{{- $key := index . 2 }}
{{- $prefix := ternary (printf "AKRI_%s_" (upper (toString $handler.name))) "AKRI_" (eq $key "agentValue") }}
{{- range $handler.env }}
{{- if hasKey . $key }}
{{- $value := index $context.Values (index . $key) }}
{{- if kindIs "slice" $value }}{{ $value = join "," $value }}{{ end }}
{{- if ne (toString $value) "" }}
- name: {{ regexReplaceAll "^AKRI_" .name $prefix }}
  value: {{ $value | quote }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* The volumeMounts of a handler: an entry of akri.handlers. */}}
{{- define "akri.handlerMounts" -}}
{{- range .mounts }}
- {name: {{ .name }}, mountPath: {{ .mountPath }}{{ if .readOnly }}, readOnly: true{{ end }}}
{{- end }}
{{- end }}

{{/* The volumes of a handler: list of context and entry of akri.handlers. */}}
{{- define "akri.handlerVolumes" -}}
{{- $context := index . 0 }}
{{- range (index . 1).mounts }}
- name: {{ .name }}
  {{- if .hostPathValue }}
  {{- $path := $context.Values }}
  {{- range splitList "." .hostPathValue }}{{ $path = index $path . }}{{ end }}
  hostPath:
    path: {{ $path }}
    type: DirectoryOrCreate
  {{- else }}
  emptyDir: {{- toYaml .emptyDir | nindent 4 }}
  {{- end }}
{{- end }}
{{- end }}

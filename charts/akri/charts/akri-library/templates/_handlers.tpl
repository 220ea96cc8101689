{{/* The Discovery Handlers that the agent can run, and what a handler needs besides its socket and
     its flags. The Pod of the handler and the Pod of the agent are rendered from this list. A handler
     that has its own Pod only and needs nothing has no entry.

     name         Service, image and sub-chart without "handler-"; the name in global.agent.handlers.
     agent        Whether the agent can run the handler.
     default      Whether the handler is enabled by default.
     section      Upstream Akri's values of the handler: <section>.discovery.enabled enables it.
     hostNetwork  Whether the handler requires the host network.
     devices      Whether the handler connects to devices.
     env          Environment variables, from a value of the handler's sub-chart (value) and of the
                  sub-chart agent (agentValue). In the agent, AKRI_<FLAG> is AKRI_<HANDLER>_<FLAG>.
     mounts       Volumes: a directory of the node, named by a value of both sub-charts
                  (hostPathValue), or an emptyDir. */}}
{{- define "akri.handlers" -}}
- name: udev
  agent: true
  default: true
  section: udev
  mounts:
    - {name: udev, mountPath: /run/udev, readOnly: true, hostPathValue: host.udev}
- name: debug-echo
  agent: true
  default: true
  section: debugEcho
  env:
    - {name: DEBUG_ECHO_INSTANCES_SHARED, value: shared, agentValue: debugEchoShared}
  mounts: # contains the file that makes the devices unavailable
    - {name: tmp, mountPath: /tmp, emptyDir: {sizeLimit: 1Mi}}
- name: opcua
  agent: true
  section: opcua
  devices: true
  env:
    - {name: AKRI_ALLOW_NETWORKS, value: allowNetworks, agentValue: opcuaAllowNetworks}
- name: onvif
  agent: true
  section: onvif
  hostNetwork: true
  devices: true
  env:
    - {name: AKRI_INTERFACES, value: interfaces, agentValue: onvifInterfaces}
    - {name: AKRI_ALLOW_NETWORKS, value: allowNetworks, agentValue: onvifAllowNetworks}
{{- end }}

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
  "calls" (ternary (list "devices") list ($needs.devices | default false))) }}
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

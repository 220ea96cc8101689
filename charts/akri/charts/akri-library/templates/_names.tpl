{{/* What a service's objects are called, and app.kubernetes.io/name. */}}
{{- define "akri.name" -}}
{{ index (.Chart.Annotations | default dict) "akri.sh/name" | default (printf "akri-%s" .Chart.Name) }}
{{- end }}

{{/* What tells a service's pods from all others. Never changes over an upgrade. */}}
{{- define "akri.selector" -}}
app.kubernetes.io/name: {{ include "akri.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: {{ .Chart.Name }}
{{- end }}

{{- define "akri.labels" -}}
{{ include "akri.selector" . }}
app.kubernetes.io/part-of: akri
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 }}
{{- end }}

{{/* The metadata of a pod template. Without versions, so that an upgrade restarts only what it changes. */}}
{{- define "akri.podMetadata" -}}
labels:
  {{- include "akri.selector" . | nindent 2 }}
  app.kubernetes.io/part-of: akri
  {{- with .Values.podLabels }}{{ toYaml . | nindent 2 }}{{ end }}
{{- with .Values.podAnnotations }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "akri.image" -}}
{{- $global := (.Values.global).image | default dict -}}
{{- $repository := .Values.image.repository | default (printf "%s/%s" ($global.registry | default "ghcr.io/akri-mesh") .Chart.Name) -}}
{{ printf "%s:%s" $repository (toString (.Values.image.tag | default $global.tag | default .Chart.AppVersion)) }}
{{- end }}

{{/* A folder of the node: list of context, key of global.host, default. */}}
{{- define "akri.hostPath" -}}
{{- $context := index . 0 -}}
{{ get (($context.Values.global).host | default dict) (index . 1) | default (index . 2) }}
{{- end }}

{{/* Not empty when the agent runs this service or handler: then there is nothing else of it. */}}
{{- define "akri.inAgent" -}}
{{- $agent := (.Values.global).agent | default dict -}}
{{- $parts := list "registrar" "discovery-operator" "device-plugin-host" "config-plugin-allocator" -}}
{{- range $agent.handlers }}{{ $parts = append $parts (printf "handler-%s" .) }}{{ end -}}
{{- if and $agent.enabled (has .Chart.Name $parts) }}yes{{ end -}}
{{- end }}

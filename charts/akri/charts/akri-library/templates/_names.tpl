{{/* The name of a service's objects, and app.kubernetes.io/name. Handlers and broker-controller have
     the names of upstream Akri, because its users select by them. */}}
{{- define "akri.name" -}}
{{- if eq "handler-custom" .Chart.Name -}}
{{ .Values.name }}
{{- else if hasPrefix "handler-" .Chart.Name -}}
akri-{{ trimPrefix "handler-" .Chart.Name }}-discovery
{{- else if eq .Chart.Name "broker-controller" -}}
akri-controller
{{- else -}}
akri-{{ .Chart.Name }}{{ with .nameSuffix }}{{ . }}{{ end }}
{{- end -}}
{{- end }}

{{/* The labels that select a service's Pods. An upgrade must not change them. */}}
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

{{/* The metadata of a Pod template. Without versions, so that an upgrade restarts only changed Pods. */}}
{{- define "akri.podMetadata" -}}
labels:
  {{- include "akri.selector" . | nindent 2 }}
  app.kubernetes.io/part-of: akri
  {{- with .Values.podLabels }}{{ toYaml . | nindent 2 }}{{ end }}
{{- with .Values.podAnnotations }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* A released chart has the digest of its image as an annotation, not as a value: a value would
     pin the released image also where the user sets another tag. */}}
{{- define "akri.image" -}}
{{- $global := (.Values.global).image | default dict -}}
{{- $repository := .Values.image.repository | default (printf "%s/%s" ($global.registry | default "ghcr.io/akri-mesh") .Chart.Name) -}}
{{- $tag := .Values.image.tag | default $global.tag -}}
{{- $digest := .Values.image.digest -}}
{{- if not (or $digest $tag .Values.image.repository) -}}
{{- $digest = index .Chart.Annotations "akri.sh/image-digest" -}}
{{- end -}}
{{ printf "%s:%s" $repository (toString ($tag | default .Chart.AppVersion)) }}{{ with $digest }}@{{ . }}{{ end }}
{{- end }}

{{/* The services that the agent replaces. With global.resources=dra, those of device plugins run in Pods
     of their own, on the nodes that keep device plugins. */}}
{{- define "akri.nodeServices" -}}
{{- if include "akri.auto" . -}}
[registrar, discovery-operator, device-plugin-host, config-plugin-allocator, dra-kubelet-plugin]
{{- else if include "akri.dra" . -}}
[registrar, discovery-operator, dra-kubelet-plugin]
{{- else -}}
[registrar, discovery-operator, device-plugin-host, config-plugin-allocator]
{{- end -}}
{{- end }}

{{/* The services that run once per cluster. */}}
{{- define "akri.clusterServices" -}}
[instance-writer, broker-controller, dra-controller, console, cleanup]
{{- end }}

{{/* Not empty if Pods can get devices by Dynamic Resource Allocation. */}}
{{- define "akri.dra" -}}
{{- if has ((.Values.global).resources | default "devicePlugin") (list "dra" "auto") }}yes{{ end -}}
{{- end }}

{{/* Not empty if the cluster decides how Pods get devices. */}}
{{- define "akri.auto" -}}
{{- if eq ((.Values.global).resources | default "devicePlugin") "auto" }}yes{{ end -}}
{{- end }}

{{/* The environment of a service that follows the decision. */}}
{{- define "akri.resourcesEnv" -}}
{{- if include "akri.auto" . }}
- name: AKRI_RESOURCES
  value: auto
{{- end }}
{{- end }}

{{/* The namespace of the services of nodes. */}}
{{- define "akri.nodeNamespace" -}}
{{ ((.Values.global).nodePlane).namespace | default .Release.Namespace }}
{{- end }}

{{/* The namespace of a service. */}}
{{- define "akri.namespace" -}}
{{- if has .Chart.Name (include "akri.clusterServices" . | fromYamlArray) -}}
{{ .Release.Namespace }}
{{- else -}}
{{ include "akri.nodeNamespace" . }}
{{- end -}}
{{- end }}

{{/* Not empty when the agent runs this service or handler. Its sub-chart renders nothing then. */}}
{{- define "akri.inAgent" -}}
{{- $agent := (.Values.global).agent | default dict -}}
{{- $services := include "akri.nodeServices" . | fromYamlArray -}}
{{- range $agent.handlers }}{{ $services = append $services (printf "handler-%s" .) }}{{ end -}}
{{- if and $agent.enabled (has .Chart.Name $services) }}yes{{ end -}}
{{- end }}

{{/* The ConfigMap with the CA certificates that verify instance-writer. */}}
{{- define "akri.caConfigMap" -}}
{{ ((.Values.global).transport).caConfigMap | default "akri-ca" }}
{{- end }}

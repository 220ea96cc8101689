{{/* A service's ServiceAccount. Pods that need its token set automountServiceAccountToken. */}}
{{- define "akri.serviceAccount" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "akri.name" . }}
  namespace: {{ include "akri.namespace" . }}
  labels: {{- include "akri.labels" . | nindent 4 }}
  {{- with .Values.serviceAccountAnnotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
automountServiceAccountToken: false
{{- end }}

{{/* Binds a service's ServiceAccount to the ClusterRole of the same name. */}}
{{- define "akri.clusterRoleBinding" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ include "akri.name" . }}
  labels: {{- include "akri.labels" . | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ include "akri.name" . }}
subjects:
  - kind: ServiceAccount
    name: {{ include "akri.name" . }}
    namespace: {{ include "akri.namespace" . }}
{{- end }}

{{/* Binds a service's ServiceAccount to the Role of the same name: list of context and namespace of
     the Role. */}}
{{- define "akri.roleBinding" -}}
{{- $namespace := index . 1 -}}
{{- with index . 0 -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ include "akri.name" . }}
  namespace: {{ $namespace }}
  labels: {{- include "akri.labels" . | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ include "akri.name" . }}
subjects:
  - kind: ServiceAccount
    name: {{ include "akri.name" . }}
    namespace: {{ .Release.Namespace }}
{{- end }}
{{- end }}

{{/* The part of a Pod's spec that all services share. */}}
{{- define "akri.pod" -}}
serviceAccountName: {{ include "akri.name" . }}
terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds | default 10 }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with (.Values.global).imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- if eq (include "akri.userNamespace" .) "yes" }}
hostUsers: false
{{- end }}
{{- $security := .Values.podSecurityContext }}
{{- if has .Chart.Name (include "akri.clusterServices" . | fromYamlArray) }}
securityContext: {{- toYaml $security | nindent 2 }}
{{- else }}
{{- $options := ((.Values.global).nodePlane).seLinuxOptions }}
securityContext: {{- toYaml (merge (dict) $security (ternary (dict "seLinuxOptions" $options) dict (not (empty $options)))) | nindent 2 }}
{{- end }}
{{- end }}

{{/* "yes" if the Pod has a user namespace. Pods on the host network cannot have one, udev's events do
     not reach a Pod that has one, and the kernel cannot map the users of /dev and of files in /proc. */}}
{{- define "akri.userNamespace" -}}
{{- $global := .Values.global | default dict -}}
{{- $mapped := not (has .Chart.Name (list "handler-udev" "discovery-operator" "dra-kubelet-plugin" "agent")) -}}
{{- if and $global.userNamespaces (not .Values.hostNetwork) $mapped }}yes{{ end -}}
{{- end }}

{{/* Node selection of a Deployment or Job, without affinity. */}}
{{- define "akri.placement" -}}
nodeSelector:
  kubernetes.io/os: linux
  {{- with .Values.nodeSelector }}{{ toYaml . | nindent 2 }}{{ end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Node selection of a DaemonSet: the values of global.nodePlane and of the service, and labels,
     merged: list of context and labels. */}}
{{- define "akri.nodePlacement" -}}
{{- $labels := index . 1 -}}
{{- with index . 0 -}}
{{- $plane := (.Values.global).nodePlane | default dict -}}
nodeSelector:
  {{- toYaml (merge (dict "kubernetes.io/os" "linux") $labels .Values.nodeSelector ($plane.nodeSelector | default dict)) | nindent 2 }}
{{- with concat ($plane.tolerations | default list) .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}

{{/* The labels of the nodes of a service of device plugins: with global.resources=dra, those that keep
     device plugins. */}}
{{- define "akri.devicePluginNodes" -}}
{{- if and (include "akri.dra" .) (not (include "akri.auto" .)) }}akri.sh/resources: devicePlugin{{ end -}}
{{- end }}

{{/* Node selection of a Deployment with replicas. */}}
{{- define "akri.replicaPlacement" -}}
{{ include "akri.placement" . }}
affinity: {{- include "akri.replicaAffinity" . | nindent 2 }}
{{- with .Values.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- range . }}
  - {{ toYaml (merge (dict) . (dict "labelSelector" (dict "matchLabels" (include "akri.selector" $ | fromYaml)))) | nindent 4 | trim }}
  {{- end }}
{{- end }}
{{- end }}

{{/* The affinity of a Deployment with replicas: away from node services and, with less weight, from
     each other. The scheduler adds the weights of all Pods of a node. One Pod of each node counts,
     so that nodes with different handlers are equal and replicas still use both. */}}
{{- define "akri.replicaAffinity" -}}
{{- $replica := dict "topologyKey" "kubernetes.io/hostname" "labelSelector" (dict "matchLabels" (include "akri.selector" . | fromYaml)) }}
{{- $nodeService := dict "topologyKey" "kubernetes.io/hostname"
  "namespaces" (list (include "akri.nodeNamespace" .))
  "labelSelector" (dict
    "matchLabels" (dict "app.kubernetes.io/part-of" "akri" "app.kubernetes.io/instance" .Release.Name)
    "matchExpressions" (list (dict "key" "app.kubernetes.io/component" "operator" "In" "values" (list "discovery-operator" "agent")))) }}
{{- $preferred := list (dict "weight" 10 "podAffinityTerm" $replica) }}
{{- $required := list }}
{{- if (.Values.global).separateClusterServices }}
{{- $required = list $nodeService }}
{{- else }}
{{- $preferred = prepend $preferred (dict "weight" 100 "podAffinityTerm" $nodeService) }}
{{- end }}

{{- /* The user's podAntiAffinity replaces what is preferred, and is added to what is required. */}}
{{- $antiAffinity := .Values.affinity.podAntiAffinity | default (dict "preferredDuringSchedulingIgnoredDuringExecution" $preferred) }}
{{- with concat $required ($antiAffinity.requiredDuringSchedulingIgnoredDuringExecution | default list) }}
{{- $antiAffinity = merge (dict "requiredDuringSchedulingIgnoredDuringExecution" .) $antiAffinity }}
{{- end }}
{{- toYaml (merge (dict "podAntiAffinity" $antiAffinity) .Values.affinity) }}
{{- end }}

{{/* The part of a container that all services share. */}}
{{- define "akri.container" -}}
{{ include "akri.anyContainer" (list . .Values.resources) }}
{{- if ne .Chart.Name "cleanup" }}
{{- with .Values.extraArgs }}
args: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}

{{/* The part that all containers share: list of context and resources. */}}
{{- define "akri.anyContainer" -}}
{{- $resources := index . 1 -}}
{{- with index . 0 -}}
image: {{ include "akri.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy | default ((.Values.global).image).pullPolicy | default "IfNotPresent" }}
# The status of a container that has failed has the end of its log, which can be all that states the
# reason: an image for another processor.
terminationMessagePolicy: FallbackToLogsOnError
securityContext: {{- toYaml .Values.securityContext | nindent 2 }}
resources: {{- toYaml $resources | nindent 2 }}
{{- end }}
{{- end }}

{{/* "yes" if the service serves its metrics to authorized clients only: those whose metrics name
     Configurations and that have rights in the Kubernetes API. */}}
{{- define "akri.authorizesMetrics" -}}
{{- if and ((.Values.global).metrics).authorization (has .Chart.Name (list "instance-writer" "broker-controller")) }}yes{{ end -}}
{{- end }}

{{/* The ports of metrics and of the probes. The port of metrics has the name metrics, also if it has TLS. */}}
{{- define "akri.adminPorts" -}}
{{- if include "akri.authorizesMetrics" . -}}
- {name: health, containerPort: 8080}
- {name: metrics, containerPort: 8444}
{{- else -}}
- {name: metrics, containerPort: 8080}
{{- end }}
{{- end }}

{{/* The probes of a long-running service, on its admin port. */}}
{{- define "akri.probes" -}}
{{- $port := ternary "health" "metrics" (eq (include "akri.authorizesMetrics" .) "yes") -}}
{{- $host := "" -}}
{{- if and .Values.hostNetwork (eq .Values.metricsAddress "loopback") }}{{ $host = "127.0.0.1" }}{{ end -}}
{{ include "akri.anyProbes" (list $port $host) }}
{{- end }}

{{/* Probes: list of port and host, which is empty for that of the Pod. */}}
{{- define "akri.anyProbes" -}}
{{- $port := index . 0 -}}
{{- $host := "" -}}
{{- with index . 1 }}{{ $host = printf ", host: %s" . }}{{ end -}}
livenessProbe:
  httpGet: {path: /healthz, port: {{ $port }}{{ $host }}}
  periodSeconds: 10
  timeoutSeconds: 5
readinessProbe:
  httpGet: {path: /readyz, port: {{ $port }}{{ $host }}}
  periodSeconds: 2
  timeoutSeconds: 2
{{- end }}

{{/* The environment of every service. */}}
{{- define "akri.env" -}}
- name: AKRI_LOG_LEVEL
  value: {{ .Values.logLevel }}
{{- if include "akri.authorizesMetrics" . }}
- name: AKRI_METRICS_ADDRESS
  value: ":8444"
{{- end }}
# The garbage collector runs more often near the memory limit.
- name: GOMEMLIMIT
  valueFrom:
    resourceFieldRef: {resource: limits.memory}
{{- range $name, $value := .Values.env }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- if include "akri.traced" . }}
- name: OTEL_EXPORTER_OTLP_ENDPOINT
  value: {{ .Values.global.tracing.endpoint | quote }}
- name: OTEL_TRACES_SAMPLER
  value: parentbased_traceidratio
- name: OTEL_TRACES_SAMPLER_ARG
  value: {{ .Values.global.tracing.ratio | quote }}
- name: OTEL_POD_NAME
  valueFrom:
    fieldRef: {fieldPath: metadata.name}
- name: OTEL_NODE_NAME
  valueFrom:
    fieldRef: {fieldPath: spec.nodeName}
- name: OTEL_RESOURCE_ATTRIBUTES
  value: k8s.pod.name=$(OTEL_POD_NAME),k8s.node.name=$(OTEL_NODE_NAME)
{{- end }}
{{- with .Values.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* Not empty if the service sends traces. */}}
{{- define "akri.traced" -}}
{{- $traced := list "agent" "config-plugin-allocator" "device-plugin-host" "discovery-operator" "dra-kubelet-plugin" "instance-writer" -}}
{{- if and (((.Values.global).tracing).endpoint) (has .Chart.Name $traced) }}true{{ end }}
{{- end }}

{{/* The name of the Pod's node. */}}
{{- define "akri.nodeName" -}}
- name: AKRI_NODE_NAME
  valueFrom:
    fieldRef: {fieldPath: spec.nodeName}
{{- end }}

{{/* The environment of a service that elects a leader. */}}
{{- define "akri.leaderEnv" -}}
# The namespace of the leader-election Lease.
- name: AKRI_NAMESPACE
  valueFrom:
    fieldRef: {fieldPath: metadata.namespace}
- name: POD_NAME
  valueFrom:
    fieldRef: {fieldPath: metadata.name}
- name: POD_UID
  valueFrom:
    fieldRef: {fieldPath: metadata.uid}
# Unique per Pod, so that a restarted container still holds the Lease.
- name: AKRI_IDENTITY
  value: $(POD_NAME)_$(POD_UID)
{{- end }}

{{/* Keeps a replica of a Deployment while others are evicted. */}}
{{- define "akri.podDisruptionBudget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ include "akri.name" . }}
  namespace: {{ .Release.Namespace }}
  labels: {{- include "akri.labels" . | nindent 4 }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels: {{- include "akri.selector" . | nindent 6 }}
{{- end }}

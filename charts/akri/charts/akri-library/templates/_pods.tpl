{{/* A service's ServiceAccount. Pods that need its token set automountServiceAccountToken. */}}
{{- define "akri.serviceAccount" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "akri.name" . }}
  namespace: {{ .Release.Namespace }}
  labels: {{- include "akri.labels" . | nindent 4 }}
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
    namespace: {{ .Release.Namespace }}
{{- end }}

{{/* The part of a Pod's spec that all services share. */}}
{{- define "akri.pod" -}}
serviceAccountName: {{ include "akri.name" . }}
terminationGracePeriodSeconds: 10
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with (.Values.global).imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
securityContext: {{- toYaml .Values.podSecurityContext | nindent 2 }}
{{- end }}

{{/* Node selection of a Deployment or Job. */}}
{{- define "akri.placement" -}}
nodeSelector:
  kubernetes.io/os: linux
  {{- with .Values.nodeSelector }}{{ toYaml . | nindent 2 }}{{ end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Node selection of a DaemonSet: the values of global.nodePlane and of the service, merged. */}}
{{- define "akri.nodePlacement" -}}
{{- $plane := (.Values.global).nodePlane | default dict -}}
nodeSelector:
  {{- toYaml (merge (dict "kubernetes.io/os" "linux") .Values.nodeSelector ($plane.nodeSelector | default dict)) | nindent 2 }}
{{- with concat ($plane.tolerations | default list) .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* Node selection of a Deployment with replicas: on different nodes if possible. */}}
{{- define "akri.replicaPlacement" -}}
{{ include "akri.placement" . }}
{{- if not .Values.affinity }}
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels: {{- include "akri.selector" . | nindent 14 }}
{{- end }}
{{- end }}

{{/* The part of a container that all services share. */}}
{{- define "akri.container" -}}
image: {{ include "akri.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy | default ((.Values.global).image).pullPolicy | default "IfNotPresent" }}
securityContext: {{- toYaml .Values.securityContext | nindent 2 }}
resources: {{- toYaml .Values.resources | nindent 2 }}
{{- end }}

{{/* The probes of a long-running service, on its admin port. */}}
{{- define "akri.probes" -}}
{{- $host := "" -}}
{{- if and .Values.hostNetwork (eq .Values.metricsAddress "loopback") }}{{ $host = ", host: 127.0.0.1" }}{{ end -}}
livenessProbe:
  httpGet: {path: /healthz, port: metrics{{ $host }}}
  periodSeconds: 10
  timeoutSeconds: 5
readinessProbe:
  httpGet: {path: /readyz, port: metrics{{ $host }}}
  periodSeconds: 2
  timeoutSeconds: 2
{{- end }}

{{/* The environment of every service. */}}
{{- define "akri.env" -}}
- name: AKRI_LOG_LEVEL
  value: {{ .Values.logLevel }}
# The garbage collector runs more often near the memory limit.
- name: GOMEMLIMIT
  valueFrom:
    resourceFieldRef: {resource: limits.memory}
{{- range $name, $value := .Values.env }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end }}

{{/* The name of the Pod's node. */}}
{{- define "akri.nodeName" -}}
- name: AKRI_NODE_NAME
  valueFrom:
    fieldRef: {fieldPath: spec.nodeName}
{{- end }}

{{/* A Configuration from upstream Akri's values <handler>.configuration. The argument is a dict of
     root, values, handler, details and optionally containerSecurityContext (default of a broker Pod),
     volumes and mounts (of the broker). */}}
{{- define "akri.configuration" -}}
{{- $c := .values -}}
apiVersion: akri.sh/v0
kind: Configuration
metadata:
  name: {{ $c.name }}
  namespace: {{ .root.Release.Namespace }}
  labels: {{- include "akri.configuration.labels" .root | nindent 4 }}
spec:
  discoveryHandler:
    name: {{ .handler }}
    discoveryDetails: {{ .details | quote }}
    {{- with $c.discoveryProperties }}
    discoveryProperties: {{- toYaml . | nindent 6 }}
    {{- end }}
  capacity: {{ $c.capacity }}
  {{- with $c.brokerProperties }}
  brokerProperties:
    {{- range $key, $value := . }}
    {{ $key }}: {{ $value | quote }}
    {{- end }}
  {{- end }}
  {{- if $c.brokerPod.image.repository }}
  brokerSpec:
    brokerPodSpec: {{- include "akri.broker" (merge (dict "broker" $c.brokerPod) .) | nindent 6 }}
  {{- if $c.createInstanceServices }}
  instanceServiceSpec: {{- include "akri.brokerService" $c.instanceService | nindent 4 }}
  {{- end }}
  {{- if $c.createConfigurationService }}
  configurationServiceSpec: {{- include "akri.brokerService" $c.configurationService | nindent 4 }}
  {{- end }}
  {{- else if $c.brokerJob.image.repository }}
  brokerSpec:
    brokerJobSpec:
      backoffLimit: {{ $c.brokerJob.backoffLimit }}
      parallelism: {{ $c.brokerJob.parallelism }}
      completions: {{ $c.brokerJob.completions }}
      template:
        spec:
          restartPolicy: {{ $c.brokerJob.restartPolicy }}
          {{- include "akri.broker" (merge (dict "broker" $c.brokerJob) (omit . "containerSecurityContext")) | nindent 10 }}
  {{- end }}
{{- end }}

{{/* The Pod spec of a broker. */}}
{{- define "akri.broker" -}}
{{- $b := .broker -}}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
containers:
  - name: {{ .values.name }}-broker
    image: {{ printf "%s:%v" $b.image.repository ($b.image.tag | default "latest") | quote }}
    {{- with $b.image.pullPolicy }}
    imagePullPolicy: {{ . }}
    {{- end }}
    {{- with $b.command }}
    command: {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- with $b.securityContext | default .containerSecurityContext }}
    securityContext: {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- if or $b.env $b.extraEnv }}
    env:
      {{- range $name, $value := $b.env }}
      - name: {{ $name }}
        value: {{ $value | quote }}
      {{- end }}
      {{- with $b.extraEnv }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    {{- end }}
    {{- if or $b.envFrom.secretRef $b.envFrom.configMapRef }}
    envFrom:
      {{- range $b.envFrom.secretRef }}
      - secretRef: {name: {{ . | quote }}}
      {{- end }}
      {{- range $b.envFrom.configMapRef }}
      - configMapRef: {name: {{ . | quote }}}
      {{- end }}
    {{- end }}
    {{- with $b.ports }}
    ports: {{- toYaml . | nindent 6 }}
    {{- end }}
    {{- with $b.readinessProbe }}
    readinessProbe: {{- toYaml . | nindent 6 }}
    {{- end }}
    resources:
      requests:
        {{`"{{PLACEHOLDER}}"`}}: "1"
        {{- with $b.resources.memoryRequest }}
        memory: {{ . }}
        {{- end }}
        {{- with $b.resources.cpuRequest }}
        cpu: {{ . }}
        {{- end }}
      limits:
        {{`"{{PLACEHOLDER}}"`}}: "1"
        {{- with $b.resources.memoryLimit }}
        memory: {{ . }}
        {{- end }}
        {{- with $b.resources.cpuLimit }}
        cpu: {{ . }}
        {{- end }}
    {{- with concat ($b.volumeMounts | default list) (.mounts | default list) }}
    volumeMounts: {{- toYaml . | nindent 6 }}
    {{- end }}
{{- with concat ($b.volumes | default list) (.volumes | default list) }}
volumes: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $b.podSecurityContext }}
securityContext: {{- toYaml . | nindent 2 }}
{{- end }}
{{- if eq ($b.automountServiceAccountToken | toString) "false" }}
automountServiceAccountToken: false
{{- end }}
{{- with $b.terminationGracePeriodSeconds }}
terminationGracePeriodSeconds: {{ . }}
{{- end }}
{{- end }}

{{- define "akri.brokerService" -}}
type: {{ .type }}
ports:
  - name: {{ .portName | default "grpc" }}
    port: {{ .port }}
    targetPort: {{ .targetPort }}
    protocol: {{ .protocol }}
{{- end }}

{{- define "akri.configuration.labels" -}}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/part-of: akri
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{/* Not empty if the release has services, and not only Configurations. */}}
{{- define "akri.hasServices" -}}
{{- if (.Values.services | default dict).enabled | toString | ne "false" }}yes{{ end -}}
{{- end }}

{{/* Labels of the objects for Prometheus and Grafana. */}}
{{- define "akri.monitoring.labels" -}}
app.kubernetes.io/name: akri
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/part-of: akri
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

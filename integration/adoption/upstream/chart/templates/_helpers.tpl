{{- define "labels" -}}
helm.sh/chart: {{ .root.Chart.Name }}-{{ .root.Chart.Version }}
app.kubernetes.io/name: akri-{{ .name }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/component: {{ .component }}
app.kubernetes.io/part-of: {{ .root.Chart.Name }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{- end }}

{{- /* A container that runs a binary of the directory that the test copies to each node. Its image is empty
apart from one file. The other mounts have the shared libraries of binaries that are not static. */ -}}
{{- define "container" -}}
image: ghcr.io/akri-mesh/sample-broker:dev
imagePullPolicy: IfNotPresent
command: [/upstream/{{ .binary }}]
volumeMounts:
- {name: upstream, mountPath: /upstream, readOnly: true}
- {name: usr, mountPath: /usr, readOnly: true}
- {name: lib, mountPath: /lib, readOnly: true}
- {name: lib64, mountPath: /lib64, readOnly: true}
{{- end }}

{{- define "volumes" -}}
- {name: upstream, hostPath: {path: /var/lib/akri-upstream}}
- {name: usr, hostPath: {path: /usr}}
- {name: lib, hostPath: {path: /lib}}
- {name: lib64, hostPath: {path: /lib64}}
{{- end }}

{{/* The DaemonSet of a node service or handler. The argument is a dict:

     context      The context of the sub-chart.
     name         Name of the DaemonSet; by default akri.name.
     metricsPort  Port of /metrics and of the probes; by default 8080.
     directories  Directories of the node to mount: handlers, mesh, kubelet; and mounts, the file with
                  the node's mounts.
     callers      Prefixes of the environment variables of the components that call instance-writer.
     env, volumeMounts, volumes   YAML lists to append, or nothing. */}}
{{- define "akri.daemonSet" -}}
{{- $ := .context -}}
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: {{ .name | default (include "akri.name" $) }}
  namespace: {{ $.Release.Namespace }}
  labels: {{- include "akri.labels" $ | nindent 4 }}
spec:
  selector:
    matchLabels: {{- include "akri.selector" $ | nindent 6 }}
  updateStrategy: {{- toYaml $.Values.updateStrategy | nindent 4 }}
  template:
    metadata: {{- include "akri.podMetadata" $ | nindent 6 }}
    spec:
      {{- include "akri.pod" $ | nindent 6 }}
      {{- include "akri.nodePlacement" $ | nindent 6 }}
      automountServiceAccountToken: false
      {{- if $.Values.hostNetwork }}
      hostNetwork: true
      dnsPolicy: ClusterFirstWithHostNet
      {{- end }}
      containers:
        - name: {{ $.Chart.Name }}
          {{- include "akri.container" $ | nindent 10 }}
          {{- include "akri.probes" $ | nindent 10 }}
          ports:
            - {name: metrics, containerPort: {{ .metricsPort | default 8080 }}}
            {{- if $.Values.useNetworkConnection }}
            - {name: discovery, containerPort: {{ $.Values.env.AKRI_PORT | default 10000 }}}
            {{- end }}
          env:
            {{- include "akri.env" $ | nindent 12 }}
            {{- include "akri.nodeName" $ | nindent 12 }}
            {{- with .metricsPort }}
            - name: AKRI_ADMIN_ADDRESS
              value: {{ printf ":%v" . | quote }}
            {{- end }}
            {{- if $.Values.useNetworkConnection }}
            - name: POD_IP
              valueFrom:
                fieldRef: {fieldPath: status.podIP}
            {{- end }}
            {{- range .callers }}
            - name: AKRI_{{ . }}INSTANCE_WRITER_CA
              value: /var/run/secrets/akri/ca.crt
            - name: AKRI_{{ . }}INSTANCE_WRITER_TOKEN
              value: /var/run/secrets/akri/token
            {{- end }}
            {{- with .env | default "" | trim }}{{ . | nindent 12 }}{{ end }}
          volumeMounts:
            {{- include "akri.directoryMounts" .directories | trim | nindent 12 }}
            {{- if .callers }}
            - {name: identity, mountPath: /var/run/secrets/akri, readOnly: true}
            {{- end }}
            {{- with .volumeMounts | default "" | trim }}{{ . | nindent 12 }}{{ end }}
      volumes:
        {{- include "akri.directoryVolumes" . | trim | nindent 8 }}
        {{- if .callers }}
        # How the Pod proves to instance-writer on which node it runs, and verifies instance-writer.
        # The Pod starts when instance-writer has published its CA certificates.
        - name: identity
          projected:
            defaultMode: 0400
            sources:
              - serviceAccountToken: {audience: akri-instance-writer, expirationSeconds: 3600, path: token}
              - configMap:
                  name: {{ include "akri.caConfigMap" $ }}
                  items: [{key: ca.crt, path: ca.crt}]
        {{- end }}
        {{- with .volumes | default "" | trim }}{{ . | nindent 8 }}{{ end }}
{{- end }}

{{/* The volumeMounts of directories of the node. */}}
{{- define "akri.directoryMounts" -}}
{{- if has "handlers" . }}
- {name: handlers, mountPath: /var/lib/akri}
{{- end }}
{{- if has "mesh" . }}
- {name: mesh, mountPath: /run/akri}
{{- end }}
{{- if has "kubelet" . }}
- {name: device-plugins, mountPath: /var/lib/kubelet/device-plugins}
- {name: pod-resources, mountPath: /var/lib/kubelet/pod-resources}
{{- end }}
{{- if has "mounts" . }}
- {name: mounts, mountPath: /host/mountinfo, readOnly: true}
{{- end }}
{{- end }}

{{/* The volumes of directories of the node: dict of context and directories. */}}
{{- define "akri.directoryVolumes" -}}
{{- $host := (.context.Values.global).host | default dict }}
{{- if has "handlers" .directories }}
- name: handlers
  hostPath:
    path: {{ $host.handlers | default "/var/lib/akri" }}
    type: DirectoryOrCreate
{{- end }}
{{- if has "mesh" .directories }}
- name: mesh
  hostPath:
    path: {{ $host.mesh | default "/run/akri" }}
    type: DirectoryOrCreate
{{- end }}
{{- if has "kubelet" .directories }}
{{- range list "device-plugins" "pod-resources" }}
- name: {{ . }}
  hostPath:
    path: {{ $host.kubelet | default "/var/lib/kubelet" }}/{{ . }}
    type: Directory
{{- end }}
{{- end }}
{{- if has "mounts" .directories }}
# The mounts of the node, because its disks must not be devices. A container sees only its own.
- name: mounts
  hostPath:
    path: /proc/1/mountinfo
    type: File
{{- end }}
{{- end }}

{{/* What devices may use: list of context and prefix of the environment variables of
     discovery-operator. */}}
{{- define "akri.deviceEnv" -}}
{{- $prefix := index . 1 -}}
- name: AKRI_{{ $prefix }}HOST_MOUNTS
  value: /host/mountinfo
{{- with ((index . 0).Values.global).allowHostPaths }}
- name: AKRI_{{ $prefix }}ALLOW_HOST_PATHS
  value: {{ join "," . | quote }}
{{- end }}
{{- end }}

{{/* The namespace and name of the Pod, in an environment variable. The argument is its name. */}}
{{- define "akri.podName" -}}
- name: POD_NAMESPACE
  valueFrom:
    fieldRef: {fieldPath: metadata.namespace}
- name: POD_NAME
  valueFrom:
    fieldRef: {fieldPath: metadata.name}
# A restarted kubelet lists its Pods completely once the list contains this Pod.
- name: {{ . }}
  value: $(POD_NAMESPACE)/$(POD_NAME)
{{- end }}

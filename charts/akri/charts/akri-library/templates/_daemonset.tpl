{{/* The DaemonSet of a node service or handler. The argument is a dict:

     context      The context of the sub-chart.
     name         Name of the DaemonSet; by default akri.name.
     metricsPort  Port of /metrics and of the probes; by default 8080.
     writes       Directories of the node in which the Pod creates sockets: names of akri.directories.
     reads        Directories that it mounts read-only: connecting to a socket needs no more.
     callers      Prefixes of the environment variables of the components that call instance-writer.
     nodeLabels   Labels of the nodes, in addition to the values, as a dict.
     relay        Whether the Pod has dra-kubelet-plugin, and a relay between it and the kubelet.
     env, volumeMounts, volumes   YAML lists to append, or nothing. */}}
{{- define "akri.daemonSet" -}}
{{- $ := .context -}}
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: {{ .name | default (include "akri.name" $) }}
  namespace: {{ include "akri.namespace" $ }}
  labels: {{- include "akri.labels" $ | nindent 4 }}
spec:
  revisionHistoryLimit: {{ $.Values.revisionHistoryLimit }}
  selector:
    matchLabels: {{- include "akri.selector" $ | nindent 6 }}
  updateStrategy: {{- toYaml $.Values.updateStrategy | nindent 4 }}
  template:
    metadata: {{- include "akri.podMetadata" $ | nindent 6 }}
    spec:
      {{- include "akri.pod" $ | nindent 6 }}
      {{- include "akri.nodePlacement" (list $ (.nodeLabels | default dict)) | nindent 6 }}
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
            {{- include "akri.adminAddress" (list $ .) | trim | nindent 12 }}
            {{- end }}
            {{- if $.Values.useNetworkConnection }}
            - name: POD_IP
              valueFrom:
                fieldRef: {fieldPath: status.podIP}
            {{- end }}
            {{- range .callers }}
            {{- if ne (include "akri.namespace" $) $.Release.Namespace }}
            - name: AKRI_{{ . }}INSTANCE_WRITER
              value: dns:///akri-instance-writer.{{ $.Release.Namespace }}:9443
            {{- end }}
            - name: AKRI_{{ . }}INSTANCE_WRITER_CA
              value: /var/run/secrets/akri/ca.crt
            - name: AKRI_{{ . }}INSTANCE_WRITER_TOKEN
              value: /var/run/secrets/akri/token
            {{- end }}
            {{- with .env | default "" | trim }}{{ . | nindent 12 }}{{ end }}
          volumeMounts:
            {{- include "akri.directoryMounts" . | trim | nindent 12 }}
            {{- if .callers }}
            - {name: identity, mountPath: /var/run/secrets/akri, readOnly: true}
            {{- end }}
            {{- if .relay }}
            - {name: dra-kubelet-plugin, mountPath: /run/akri/dra-kubelet-plugin}
            {{- end }}
            {{- with .volumeMounts | default "" | trim }}{{ . | nindent 12 }}{{ end }}
        {{- if .relay }}
        {{- include "akri.relay" $ | nindent 8 }}
        {{- end }}
      volumes:
        {{- $relayed := ternary (list "plugins-registry") list (.relay | default false) }}
        {{- $writes := concat (.writes | default list) $relayed }}
        {{- include "akri.directoryVolumes" (dict "context" $ "writes" $writes "reads" .reads) | trim | nindent 8 }}
        {{- if .relay }}
        # The socket between the relay and dra-kubelet-plugin.
        - {name: dra-kubelet-plugin, emptyDir: {}}
        {{- end }}
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

{{/* The container that serves the kubelet while that of dra-kubelet-plugin restarts. A lack of memory
     ends all processes of a container. */}}
{{- define "akri.relay" -}}
{{- $host := ternary "127.0.0.1" "" (.Values.hostNetwork | default false) -}}
- name: relay
  {{- include "akri.anyContainer" (list . .Values.relay.resources) | nindent 2 }}
  args: [relay]
  {{- include "akri.anyProbes" (list "relay" $host) | nindent 2 }}
  ports:
    - {name: relay, containerPort: {{ .Values.relay.port }}}
  env:
    - name: AKRI_LOG_LEVEL
      value: {{ .Values.logLevel }}
    - name: AKRI_ADMIN_ADDRESS
      value: {{ printf "%s:%v" $host .Values.relay.port | quote }}
    - name: GOMEMLIMIT
      valueFrom:
        resourceFieldRef: {resource: limits.memory}
    {{- include "akri.podName" "AKRI_POD" | nindent 4 }}
  volumeMounts:
    {{- include "akri.directoryMounts" (dict "context" . "writes" (list "plugins-registry")) | trim | nindent 4 }}
    - {name: dra-kubelet-plugin, mountPath: /run/akri/dra-kubelet-plugin}
{{- end }}

{{/* The directories of the node that a Pod can mount, as name: [path in the container, path on the
     node]. Each service has a directory of its own for its sockets. The argument is the context. */}}
{{- define "akri.directories" -}}
{{- $host := (.Values.global).host | default dict -}}
{{- $kubelet := $host.kubelet | default "/var/lib/kubelet" -}}
handlers: [/var/lib/akri, {{ $host.handlers | default "/var/lib/akri" }}]
{{- range list "registrar" "discovery-operator" "config-plugin-allocator" }}
{{ . }}: [/run/akri/{{ . }}, {{ $host.mesh | default "/run/akri" }}/{{ . }}]
{{- end }}
device-plugins: [/var/lib/kubelet/device-plugins, {{ $host.devicePlugins | default "/var/lib/kubelet/device-plugins" }}]
pod-resources: [/var/lib/kubelet/pod-resources, {{ $kubelet }}/pod-resources]
plugins-registry: [/var/lib/kubelet/plugins_registry, {{ $kubelet }}/plugins_registry]
cdi: [/var/run/cdi, {{ $host.cdi | default "/var/run/cdi" }}]
# The mounts of the node, because its disks must not be devices. A container sees only its own.
mounts: [/host/mountinfo, /proc/1/mountinfo]
# The owners of the node's device nodes. A container has a /dev of its own.
devices: [/host/dev, /dev]
{{- end }}

{{/* The volumeMounts of directories of the node: dict of context, writes and reads. */}}
{{- define "akri.directoryMounts" -}}
{{- $directories := include "akri.directories" .context | fromYaml -}}
{{- range .writes }}
- {name: {{ . }}, mountPath: {{ index $directories . 0 }}}
{{- end }}
{{- range .reads }}
- {name: {{ . }}, mountPath: {{ index $directories . 0 }}, readOnly: true{{ if eq . "devices" }}, recursiveReadOnly: IfPossible{{ end }}}
{{- end }}
{{- end }}

{{/* The volumes of directories of the node: dict of context, writes and reads. The kubelet's
     directories must exist. */}}
{{- define "akri.directoryVolumes" -}}
{{- $types := dict "device-plugins" "Directory" "pod-resources" "Directory" "plugins-registry" "Directory" "mounts" "File" "devices" "Directory" -}}
{{- $directories := include "akri.directories" .context | fromYaml -}}
{{- range concat (.writes | default list) (.reads | default list) }}
- name: {{ . }}
  hostPath:
    path: {{ index $directories . 1 }}
    type: {{ get $types . | default "DirectoryOrCreate" }}
{{- end }}
{{- end }}

{{/* The environment of discovery-operator: list of context and prefix of its variables. Nodes have no
     rights in the Kubernetes API to authorize who reads their metrics. */}}
{{- define "akri.deviceEnv" -}}
{{- $prefix := index . 1 -}}
- name: AKRI_{{ $prefix }}HOST_MOUNTS
  value: /host/mountinfo
{{- if (((index . 0).Values.global).metrics).authorization }}
- name: AKRI_{{ $prefix }}METRICS_WITHOUT_NAMES
  value: "true"
{{- end }}
{{- with ((index . 0).Values.global).allowHostPaths }}
- name: AKRI_{{ $prefix }}ALLOW_HOST_PATHS
  value: {{ join "," . | quote }}
{{- end }}
{{- with ((index . 0).Values.global).allowDeviceClasses }}
- name: AKRI_{{ $prefix }}ALLOW_DEVICE_CLASSES
  value: {{ join "," . | quote }}
{{- end }}
{{- with ((index . 0).Values.global).allowFromHandlers }}
- name: AKRI_{{ $prefix }}ALLOW_FROM_HANDLERS
  value: {{ toJson . | quote }}
{{- end }}
{{- end }}

{{/* Where /dev of the node is, for dra-kubelet-plugin. The argument is the prefix of its environment
     variables. */}}
{{- define "akri.hostDev" -}}
- name: AKRI_{{ . }}HOST_DEV
  value: /host/dev
{{- end }}

{{/* The namespace and name of the Pod, in an environment variable. The argument is its name. A
     restarted kubelet lists its Pods completely once the list contains this Pod. */}}
{{- define "akri.podName" -}}
- name: POD_NAMESPACE
  valueFrom:
    fieldRef: {fieldPath: metadata.namespace}
- name: POD_NAME
  valueFrom:
    fieldRef: {fieldPath: metadata.name}
- name: {{ . }}
  value: $(POD_NAMESPACE)/$(POD_NAME)
{{- end }}

{{/* The address of /metrics and of the probes: list of context and port. A Pod on the host network
     has the addresses of all networks of the node, also of the network of the devices. */}}
{{- define "akri.adminAddress" -}}
{{- $values := (index . 0).Values }}
{{- $host := "" }}
{{- if $values.hostNetwork }}
{{- $host = get (dict "node" "[$(HOST_IP)]" "loopback" "127.0.0.1" "all" "") $values.metricsAddress }}
{{- end }}
{{- if contains "HOST_IP" $host }}
- name: HOST_IP
  valueFrom:
    fieldRef: {fieldPath: status.hostIP}
{{- end }}
- name: AKRI_ADMIN_ADDRESS
  value: {{ printf "%s:%v" $host (index . 1) | quote }}
{{- end }}

{{/* The NetworkPolicy of a service's Pods. A NetworkPolicy has no effect on Pods on the host network,
     so they have none. The argument is a dict:

     context      The context of the sub-chart.
     annotations  YAML, or nothing.
     serves       Ports besides metrics: a list of port and components or from, a list of peers.
                  The agent stands for the components that it replaces. Without components and
                  peers, every source can connect.
     calls        Destinations: instance-writer, api-server, webhook, handlers, devices. */}}
{{- define "akri.networkPolicy" -}}
{{- $ := .context -}}
{{- $policy := ($.Values.global).networkPolicy | default dict -}}
{{- if and $policy.enabled (not $.Values.hostNetwork) -}}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  name: {{ include "akri.name" $ }}
  namespace: {{ include "akri.namespace" $ }}
  labels: {{- include "akri.labels" $ | nindent 4 }}
  {{- with .annotations }}
  annotations: {{- . | nindent 4 }}
  {{- end }}
spec:
  podSelector:
    matchLabels: {{- include "akri.selector" $ | nindent 6 }}
  policyTypes: [Ingress, Egress]
  ingress:
    {{- with $policy.metrics }}
    - from: {{- toYaml . | nindent 8 }}
      ports: [{port: metrics}]
    {{- end }}
    {{- range .serves }}
    - ports: [{port: {{ .port }}}]
      {{- with .components }}
      from:
        {{- include "akri.componentPeer" (list $ (append . "agent") (include "akri.nodeNamespace" $)) | nindent 8 }}
        {{- with $policy.nodes }}{{ toYaml . | nindent 8 }}{{ end }}
      {{- end }}
      {{- with .from }}
      from: {{- toYaml . | nindent 8 }}
      {{- end }}
    {{- end }}
  egress:
    {{- $traced := include "akri.traced" $ }}
    {{- if or .calls $traced }}
    # DNS. 5353 is the port of OpenShift's DNS Pods.
    - ports:
        - {port: 53, protocol: UDP}
        - {port: 53, protocol: TCP}
        - {port: 5353, protocol: UDP}
        - {port: 5353, protocol: TCP}
    {{- end }}
    {{- if has "instance-writer" .calls }}
    - ports: [{port: 9443}]
      to: {{- include "akri.componentPeer" (list $ (list "instance-writer") $.Release.Namespace) | nindent 8 }}
    {{- end }}
    {{- if has "webhook" .calls }}
    - ports: [{port: 8443}]
      to: {{- include "akri.componentPeer" (list $ (list $.Chart.Name) $.Release.Namespace) | nindent 8 }}
    {{- end }}
    {{- if has "api-server" .calls }}
    # The API server.
    - ports: [{protocol: TCP}]
      {{- with $policy.apiServer }}
      to: {{- toYaml . | nindent 8 }}
      {{- end }}
    {{- end }}
    {{- if has "handlers" .calls }}
    # Discovery Handlers that registered a network address.
    - ports: [{protocol: TCP}]
      {{- with $policy.handlers }}
      to: {{- toYaml . | nindent 8 }}
      {{- end }}
    {{- end }}
    {{- if has "devices" .calls }}
    # Devices.
    - ports: [{protocol: TCP}, {protocol: UDP}]
      {{- with $policy.devices }}
      to: {{- toYaml . | nindent 8 }}
      {{- end }}
    {{- end }}
    {{- if $traced }}
    # The collector of traces.
    - ports: [{protocol: TCP}]
      {{- with $policy.collector }}
      to: {{- toYaml . | nindent 8 }}
      {{- end }}
    {{- end }}
{{- end }}
{{- end }}

{{/* The Pods of components: list of context, components and their namespace. */}}
{{- define "akri.componentPeer" -}}
- namespaceSelector:
    matchLabels: {kubernetes.io/metadata.name: {{ index . 2 }}}
  podSelector:
    matchLabels: {app.kubernetes.io/part-of: akri, app.kubernetes.io/instance: {{ (index . 0).Release.Name }}}
    matchExpressions:
      - {key: app.kubernetes.io/component, operator: In, values: {{ index . 1 | toJson }}}
{{- end }}

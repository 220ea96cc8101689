{{/* The values of upstream Akri's chart that are set and have the key in files/upstream.yaml, with its
     text: list of root and key, `refused` or `noted`. */}}
{{- define "akri.upstream" -}}
{{- $root := index . 0 }}{{ $key := index . 1 }}
{{- $services := dict }}
{{- range include "akri.handlers" $root | fromYamlArray }}
{{- if .section }}{{ $_ := set $services .section (printf "handler-%s" .name) }}{{ end }}
{{- end }}

{{- $found := dict }}
{{- range $entry := $root.Files.Get "files/upstream.yaml" | fromYamlArray }}
{{- $applied := not (hasKey $entry $key) }}
{{- range $entry.unless }}
{{- $actual := include "akri.upstream.value" (list $root.Values (splitList "=" . | first)) | fromJsonArray | first }}
{{- if eq (toString $actual) (splitList "=" . | last) }}{{ $applied = true }}{{ end }}
{{- end }}

{{- if not $applied }}
{{- $section := splitList "." $entry.value | first }}
{{- $below := trimPrefix $section $entry.value }}
{{- $sections := list $section }}
{{- if eq $section "<handler>" }}{{ $sections = keys $services }}{{ end }}
{{- if eq $section "*" }}{{ $sections = append (keys $services) "custom" }}{{ end }}
{{- range $sections }}
{{- $name := printf "%s%s" . $below }}
{{- $actual := include "akri.upstream.value" (list $root.Values $name) | fromJsonArray | first }}
{{- if ne (toJson $actual) (toJson $entry.default) }}
{{- $text := get $entry $key }}
{{- with get $services . }}{{ $text = replace "<service>" . $text }}{{ end }}
{{- range include "akri.upstream.names" (list $name $actual) | splitList "\n" | compact }}
{{- if not (hasKey $found .) }}{{ $_ := set $found . $text }}{{ end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- toYaml $found }}
{{- end }}

{{/* A list with the value with a name, or with null: list of values and name. */}}
{{- define "akri.upstream.value" -}}
{{- $actual := index . 0 }}
{{- range splitList "." (index . 1) }}
{{- $actual = index (ternary $actual dict (kindIs "map" $actual)) . }}
{{- end }}
{{- toJson (list $actual) }}
{{- end }}

{{/* The names of a value and of those below it that are set, one a line: list of name and value. */}}
{{- define "akri.upstream.names" -}}
{{- $name := index . 0 }}{{ $value := index . 1 }}
{{- if kindIs "map" $value }}
{{- range $key, $below := $value }}{{ include "akri.upstream.names" (list (printf "%s.%s" $name $key) $below) }}{{ end }}
{{- else if not (or (kindIs "invalid" $value) (and (kindIs "slice" $value) (empty $value))) }}
{{- $name }}{{ "\n" }}
{{- end }}
{{- end }}

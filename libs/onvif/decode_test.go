package onvif_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"akri.sh/libs/onvif"
)

type document struct {
	Text string   `xml:",chardata"`
	B    []string `xml:"b"`
}

func TestDecodeSupportsEncodingsOfCameras(t *testing.T) {
	for text, want := range map[string]string{
		"<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?><a>\xe4</a>":            "ä",
		`<?xml version="1.0" encoding="utf-8"?><a>ä</a>`:                        "ä",
		`<?xml version="1.0" encoding="US-ASCII"?><a>a</a>`:                     "a",
		`<?xml version="1.0"?><!-- c --><s:a xmlns:s="u">x<b/></s:a><!-- c -->`: "x",
	} {
		var d document
		require.NoError(t, onvif.Decode([]byte(text), &d), text)
		require.Equal(t, want, d.Text)
	}
}

func TestDecodeIgnoresNamespaces(t *testing.T) {
	var d document
	require.NoError(t, onvif.Decode([]byte(`<a xmlns="u" xmlns:s="v"><b>1</b><s:b>2</s:b><t:b>3</t:b></a>`), &d))
	require.Equal(t, []string{"1", "2", "3"}, d.B)
}

func TestDecodeRejectsHostileDocuments(t *testing.T) {
	for name, text := range map[string]string{
		"empty": "", "text": "hello", "two roots": "<a/><a/>", "truncated": "<a><b>", "wrong end tag": "<a></b>",
		"end tag after the root": "<a/></a>", "end tag before the root": "</a><a/>",
		"unsupported encoding": `<?xml version="1.0" encoding="UTF-16"?><a/>`, "invalid UTF-8": "<a>\xff</a>",
		"DTD": `<!DOCTYPE a [<!ENTITY b "c">]><a/>`, "DTD in the root": `<a><!DOCTYPE a></a>`, "entity": "<a>&b;</a>",
		"too deep":                     strings.Repeat("<a>", 65) + strings.Repeat("</a>", 65),
		"too deep in skipped elements": "<a>" + strings.Repeat("<c>", 64) + strings.Repeat("</c>", 64) + "</a>",
		"too many elements":            "<a>" + strings.Repeat("<b/>", 16<<10) + "</a>",
		"too long":                     "<a>" + strings.Repeat(" ", onvif.MaxBytes) + "</a>",
	} {
		t.Run(name, func(t *testing.T) { require.Error(t, onvif.Decode([]byte(text), &document{})) })
	}
	require.NoError(t, onvif.Decode([]byte(strings.Repeat("<a>", 64)+strings.Repeat("</a>", 64)), &document{}))
}

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		`<s:a xmlns:s="u"> x <b><c> 1 </c></b></s:a>`, `<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>`, `<a xmlns="x"><![CDATA[<]]></a>`,
		"<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?><a>\xe4</a>", `<a xmlns:xmlns="x" xmlns:p="y"/>`, "<a></b>", "</a>",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var d document
		if onvif.Decode(data, &d) == nil {
			require.LessOrEqual(t, len(d.B), 16<<10)
		}
	})
}

package xmltree_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"akri.sh/services/handler-onvif/internal/xmltree"
)

func parse(t *testing.T, text string) *xmltree.Node {
	t.Helper()
	root, err := xmltree.Parse([]byte(text))
	require.NoError(t, err)
	return root
}

func TestPathsAreLocalNamesAndNothingIsAtPathsThatAreNotThere(t *testing.T) {
	root := parse(t, `<?xml version="1.0"?><!-- c --><s:a xmlns:s="u"> x <b><c> 1 </c><c>2</c></b><c>3</c> y </s:a>`)
	require.Equal(t, "a", root.Name.Local)
	require.Equal(t, "x  y", root.Text)
	require.Equal(t, "1", root.TextAt("b", "c"))
	require.Empty(t, root.TextAt("b", "d", "e"))
	require.Nil(t, root.Child("d"))
	require.Nil(t, root.Child("d").Child("e"))
	require.Empty(t, root.Child("d").TextAt("e"))
	require.Empty(t, root.Child("d").Find("e"))
	var found []string
	for _, node := range root.Find("c") {
		found = append(found, node.Text)
	}
	require.Equal(t, []string{"1", "2", "3"}, found)
}

func TestPrefixesAreThoseOfTheNearestElementThatDeclaresThem(t *testing.T) {
	node := parse(t, `<a xmlns:p="outer" xmlns:q="other"><b xmlns:p="inner"><c>p:x</c></b></a>`).Child("b", "c")
	require.Equal(t, "inner", node.Namespace("p"))
	require.Equal(t, "other", node.Namespace("q"))
	require.Empty(t, node.Namespace("r"))
}

func TestEncodingsThatCamerasClaim(t *testing.T) {
	require.Equal(t, "ä", parse(t, "<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?><a>\xe4</a>").Text)
	require.Equal(t, "ä", parse(t, `<?xml version="1.0" encoding="utf-8"?><a>ä</a>`).Text)
	require.Equal(t, "a", parse(t, `<?xml version="1.0" encoding="US-ASCII"?><a>a</a>`).Text)
}

func TestWhatIsTooMuchOrNoXMLIsRefused(t *testing.T) {
	for name, text := range map[string]string{
		"nothing": "", "only text": "hello", "two roots": "<a/><a/>", "cut off": "<a><b>", "closed wrongly": "<a></b>",
		"another encoding": `<?xml version="1.0" encoding="UTF-16"?><a/>`, "no UTF-8": "<a>\xff</a>",
		"a document type": `<!DOCTYPE a [<!ENTITY b "c">]><a/>`, "an entity": "<a>&b;</a>",
		"too deep": strings.Repeat("<a>", 65) + strings.Repeat("</a>", 65), "too many": "<a>" + strings.Repeat("<b/>", 16<<10) + "</a>",
		"too long": "<a>" + strings.Repeat(" ", xmltree.MaxBytes) + "</a>",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := xmltree.Parse([]byte(text))
			require.Error(t, err)
		})
	}
	parse(t, strings.Repeat("<a>", 64)+strings.Repeat("</a>", 64))
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		`<s:a xmlns:s="u"> x <b><c> 1 </c></b></s:a>`, `<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>`, `<a xmlns="x"><![CDATA[<]]></a>`,
		"<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?><a>\xe4</a>", `<a xmlns:xmlns="x" xmlns:p="y"/>`, "<a></b>", "</a>",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		root, err := xmltree.Parse(data)
		if err != nil {
			require.Nil(t, root)
			return
		}
		for _, node := range root.Find("a") {
			require.Equal(t, strings.TrimSpace(node.Text), node.Text)
			node.Namespace("p")
		}
	})
}

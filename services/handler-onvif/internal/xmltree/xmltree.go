// Package xmltree reads XML that strangers sent: within limits, without DTDs and entities of their making.
package xmltree

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Limits that no message of a camera comes near.
const (
	MaxBytes    = 256 << 10
	maxDepth    = 64
	maxElements = 16 << 10
)

// Node is one element.
type Node struct {
	Name     xml.Name
	Text     string // character data directly in the element, without space around
	Children []*Node

	parent   *Node
	prefixes map[string]string
}

// Parse returns the root of the document.
func Parse(data []byte) (*Node, error) {
	if len(data) > MaxBytes {
		return nil, fmt.Errorf("%d bytes: want at most %d", len(data), MaxBytes)
	}
	decoder := xml.NewDecoder(bytes.NewReader(data))
	decoder.CharsetReader = charset
	p := parser{}
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read XML: %w", err)
		}
		if err := p.take(token); err != nil {
			return nil, err
		}
	}
	if p.root == nil {
		return nil, errors.New("no XML element")
	}
	return p.root, nil
}

type parser struct {
	root, current   *Node
	depth, elements int
}

func (p *parser) take(token xml.Token) error {
	switch token := token.(type) {
	case xml.Directive:
		return errors.New("a document type is not accepted")
	case xml.StartElement:
		return p.open(token)
	case xml.EndElement:
		p.current.Text = strings.TrimSpace(p.current.Text)
		p.current, p.depth = p.current.parent, p.depth-1
	case xml.CharData:
		if p.current != nil {
			p.current.Text += string(token)
		}
	}
	return nil
}

func (p *parser) open(start xml.StartElement) error {
	p.depth, p.elements = p.depth+1, p.elements+1
	if p.depth > maxDepth || p.elements > maxElements {
		return fmt.Errorf("more than %d elements, or %d within each other", maxElements, maxDepth)
	}
	node := &Node{Name: start.Name, parent: p.current}
	for _, attribute := range start.Attr {
		if attribute.Name.Space == "xmlns" {
			if node.prefixes == nil {
				node.prefixes = map[string]string{}
			}
			node.prefixes[attribute.Name.Local] = attribute.Value
		}
	}
	switch {
	case p.current != nil:
		p.current.Children = append(p.current.Children, node)
	case p.root != nil:
		return errors.New("more than one root element")
	default:
		p.root = node
	}
	p.current = node
	return nil
}

// charset knows the two encodings that cameras claim beside UTF-8.
func charset(label string, input io.Reader) (io.Reader, error) {
	switch strings.ToLower(label) {
	case "us-ascii":
		return input, nil
	case "iso-8859-1":
		data, err := io.ReadAll(input)
		if err != nil {
			return nil, err
		}
		runes := make([]rune, len(data))
		for i, b := range data {
			runes[i] = rune(b)
		}
		return strings.NewReader(string(runes)), nil
	}
	return nil, fmt.Errorf("encoding %q: want UTF-8", label)
}

// Namespace returns what a prefix in the text of the element stands for; empty: it is not declared.
func (n *Node) Namespace(prefix string) string {
	for ; n != nil; n = n.parent {
		if namespace, ok := n.prefixes[prefix]; ok {
			return namespace
		}
	}
	return ""
}

// Child returns the first element at the path of local names below the element, or nil. Namespaces are not looked at:
// too many cameras get them wrong.
func (n *Node) Child(path ...string) *Node {
	for _, name := range path {
		if n = n.child(name); n == nil {
			return nil
		}
	}
	return n
}

func (n *Node) child(name string) *Node {
	if n == nil {
		return nil
	}
	for _, child := range n.Children {
		if child.Name.Local == name {
			return child
		}
	}
	return nil
}

// TextAt returns the text of Child(path...), or nothing.
func (n *Node) TextAt(path ...string) string {
	if node := n.Child(path...); node != nil {
		return node.Text
	}
	return ""
}

// Find returns all elements of the local name, wherever they stand below the element, in the order of the document.
func (n *Node) Find(name string) []*Node {
	if n == nil {
		return nil
	}
	var found []*Node
	for _, child := range n.Children {
		if child.Name.Local == name {
			found = append(found, child)
		}
		found = append(found, child.Find(name)...)
	}
	return found
}

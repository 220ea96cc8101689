// Package detailstest has discoveryDetails that tests of handlers and of the webhook share: both
// must accept and refuse the same, with the same text.
package detailstest

// Examples are details of a handler.
type Examples struct{ Accepted, Refused []string }

// Corpus has examples for each handler of this project, by its name. The accepted ones find no
// device, or those on the machine. They connect to no other machine.
var Corpus = map[string]Examples{
	"udev": {
		Accepted: []string{
			`udevRules: []`,
			`{"udevRules": ["KERNEL==\"no-such-device\""], "groupRecursive": true, "permissions": "r"}`,
			"udevRules:\n- 'SUBSYSTEM==\"no-such\", ATTRS{idVendor}!=\"04*|[0-9]\"'\nproperties: {SERIAL: 'ATTRS{serial}'}\n",
		},
		Refused: []string{
			``, `# later`, `udevRules: null`, `udevRules: ['']`, `udevRules: 'KERNEL=="a"'`, `udevRules: [{a: b}, "x"]`, `{`,
			"udevRules: [A, 'KERNEL=', 'KERNEL==\"a\"', 'RUN+=\"x\"']\npermissions: wr\nproperties: {1B: KERNEL, UDEV_A: KERNEL, C: TAG}",
			"udevRules: []\nudevRules: []\nrules: []", "udevRules: []\n---\nudevRules: []", `udevRules: ["KERNEL==\"\t\""]`, "udevRules: [\x01]", `text`,
		},
	},
	"onvif": {
		Accepted: []string{
			`discoveryTimeoutSeconds: 0`,
			`{discoveryTimeoutSeconds: 0, identity: uuid, uuids: {items: [a], action: Exclude}, scopes: {items: []}, macAddresses: null}`,
		},
		Refused: []string{
			`uuids: {}`, `uuid: {items: [a]}`, `discoveryTimeoutSeconds: soon`, `[`, `- a`,
			"uuids: {action: Include}\nscopes: {items: [], action: include}\ndiscoveryTimeoutSeconds: 601\nidentity: mac",
		},
	},
	"opcua": {
		Accepted: []string{
			`opcuaDiscoveryMethod: {standard: {discoveryUrls: ['opc.tcp://127.0.0.1:1/', 'opc.tcp://127.0.0.1:1/']}}`,
			"opcuaDiscoveryMethod:\n  standard: {discoveryUrls: []}\napplicationNames: {items: [a], action: Exclude}",
		},
		Refused: []string{
			``, `opcuaDiscoveryMethod: {}`, `opcuaDiscoveryMethod: {standard: {urls: []}}`, `opcuaDiscoveryMethod: {standard: {discoveryUrls: x}}`,
			`opcuaDiscoveryMethod: {standard: {discoveryUrls: ['http://a:1', 'opc.tcp://a', 'opc.tcp://a:0', 'opc.tcp://%zz:1', "opc.tcp://a\tb:1"]}}`,
			`{opcuaDiscoveryMethod: {standard: {}}, applicationNames: {action: include}}`, "\xc3\xa9: 1",
		},
	},
	"debugEcho": {
		Accepted: []string{`descriptions: []`, `descriptions: [foo, bar, foo]`, `{"descriptions": ["a"]}`},
		Refused:  []string{``, `descriptions: foo`, `descriptions: ['']`, "descriptions: [a]\ndescription: b", "descriptions:\n- a\n- {b: c}", `{{`},
	},
}

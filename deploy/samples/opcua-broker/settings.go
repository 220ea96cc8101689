package opcuabroker

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"akri.sh/libs/broker"

	"akri.sh/deploy/samples/opcua-broker/internal/mqtt"
	"akri.sh/deploy/samples/opcua-broker/internal/opcua"
	"akri.sh/deploy/samples/opcua-broker/internal/values"
)

const (
	// pkiDirectory is where the chart mounts the Secret opcua-broker-credentials.
	pkiDirectory    = "/etc/opcua-certs/client-pki"
	defaultAddress  = ":8083"
	defaultInterval = time.Second
	minInterval     = 50 * time.Millisecond
	maxInterval     = time.Minute
	maxNodes        = 1000
)

// Settings of the broker. README.md describes the variables.
type Settings struct {
	OPCUA opcua.Settings
	// MQTT is nil if the values are not published.
	MQTT *mqtt.Settings
	// Server has the settings of the port, and Address is listened on: ADDRESS.
	Server  broker.Server
	Address string
}

// Read returns the settings in the environment, whose variables are NAME=VALUE. It reports all
// errors at once.
func Read(environ []string) (Settings, error) {
	variables := variables(environ)
	settings := Settings{Address: variables.or("ADDRESS", defaultAddress)}
	var err error
	errs := make([]error, 0, 3)
	settings.OPCUA, err = variables.opcua()
	errs = append(errs, err)
	settings.MQTT, err = variables.mqtt()
	errs = append(errs, err)
	settings.Server, err = broker.ReadServer(variables.get)
	return settings, errors.Join(append(errs, err)...)
}

// variables are NAME=VALUE.
type variables []string

// properties are the settings that a device, or brokerProperties of its Configuration, may have.
var properties = []string{"OPCUA_DISCOVERY_URL", "OPCUA_APPLICATION_URI", "IDENTIFIER", "NAMESPACE_INDEX", "NODES"}

func (v variables) get(name string) string { return broker.Getenv(v, properties...)(name) }

func (v variables) opcua() (opcua.Settings, error) {
	var errs []error
	check := func(err error) { errs = append(errs, err) }
	address, err := v.url()
	check(err)
	nodes, err := v.nodes()
	check(err)
	password, err := v.secret("OPCUA_PASSWORD")
	check(err)
	plain, err := v.boolean("OPCUA_ALLOW_PLAIN_TEXT")
	check(err)
	interval, err := v.interval()
	check(err)
	s := opcua.Settings{
		URL: address, ApplicationURI: v.get("OPCUA_APPLICATION_URI"),
		Mode: v.get("OPCUA_SECURITY_MODE"), Policy: v.get("OPCUA_SECURITY_POLICY"),
		PKI:      opcua.PKI(v.or("OPCUA_PKI_DIRECTORY", pkiDirectory)),
		Username: v.get("OPCUA_USERNAME"), Password: password, AllowPlainText: plain,
		Interval: interval, Nodes: nodes,
	}
	check(v.security(&s))
	if (s.Username == "") != (password == nil) {
		check(errors.New("OPCUA_USERNAME and OPCUA_PASSWORD (or OPCUA_PASSWORD_FILE): set both or none"))
	}
	return s, errors.Join(errs...)
}

// security chooses the mode as upstream Akri's broker does: a broker with a certificate uses it.
func (v variables) security(s *opcua.Settings) error {
	switch s.Mode {
	case "":
		s.Mode = "None"
		if s.PKI.Exists() {
			s.Mode = "SignAndEncrypt"
		}
	case "None", "Sign", "SignAndEncrypt":
	default:
		return fmt.Errorf("OPCUA_SECURITY_MODE=%q: must be None, Sign or SignAndEncrypt", s.Mode)
	}
	if s.Mode == "None" {
		if s.Policy != "" && s.Policy != "None" {
			return fmt.Errorf("OPCUA_SECURITY_POLICY=%q: needs OPCUA_SECURITY_MODE Sign or SignAndEncrypt, and certificates in %s", s.Policy, s.PKI)
		}
		return nil
	}
	if s.Policy != "" && !opcua.Supported(s.Policy) {
		return fmt.Errorf("OPCUA_SECURITY_POLICY=%q: must be one of %s", s.Policy, strings.Join(opcua.Policies(), ", "))
	}
	if _, err := s.PKI.Identity(); err != nil {
		return fmt.Errorf("OPCUA_SECURITY_MODE=%s: %w", s.Mode, err)
	}
	return nil
}

func (v variables) url() (string, error) {
	const name = "OPCUA_DISCOVERY_URL"
	address := v.get(name)
	if address == "" {
		return "", fmt.Errorf("%s is not set: the Pod must request a device of the handler opcua", name)
	}
	parsed, err := url.Parse(address)
	if err != nil || parsed.Scheme != "opc.tcp" || parsed.Hostname() == "" {
		return "", fmt.Errorf("%s=%q: must be opc.tcp://HOST:PORT[/PATH]", name, address)
	}
	return address, nil
}

// nodeName is a name that is valid in a topic and in a URL.
var (
	nodeName  = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)
	otherRune = regexp.MustCompile(`[^A-Za-z0-9_.-]`)
)

// nodes returns the node of IDENTIFIER and NAMESPACE_INDEX, as upstream Akri's broker has it, and
// those of NODES.
func (v variables) nodes() (nodes []values.Node, err error) {
	var errs []error
	add := func(setting, name, id string) {
		if _, err := opcua.ParseNodeID(id, opcua.NamespaceOf(id)); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", setting, err))
		}
		if !nodeName.MatchString(name) {
			errs = append(errs, fmt.Errorf("%s: the name %q must have 1 to 64 letters, digits and _ . -", setting, name))
		}
		for _, node := range nodes {
			if node.Name == name {
				errs = append(errs, fmt.Errorf("%s: %s has the name %q, too", setting, node.Setting, name))
			}
		}
		nodes = append(nodes, values.Node{Name: name, ID: id, Setting: setting})
	}

	if identifier := v.get("IDENTIFIER"); identifier != "" {
		namespace, err := strconv.ParseUint(v.get("NAMESPACE_INDEX"), 10, 16)
		if err != nil {
			errs = append(errs, fmt.Errorf("NAMESPACE_INDEX=%q: must be a number from 0 to 65535, the namespace of IDENTIFIER", v.get("NAMESPACE_INDEX")))
		}
		name := otherRune.ReplaceAllString(identifier, "_")
		add("IDENTIFIER", name[:min(len(name), 64)], fmt.Sprintf("ns=%d;s=%s", namespace, identifier))
	}
	for number, line := range strings.Split(v.get("NODES"), "\n") {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		name, id, found := strings.Cut(line, ":")
		if !found {
			errs = append(errs, fmt.Errorf("NODES, line %d: %q: must be NAME: NODE_ID, such as temperature: ns=2;s=Temperature", number+1, line))
			continue
		}
		add(fmt.Sprintf("NODES, line %d", number+1), name, strings.TrimSpace(id))
	}
	switch {
	case len(nodes) == 0 && len(errs) == 0:
		errs = append(errs, errors.New("NODES is not set: list the nodes to monitor, one on each line, such as temperature: ns=2;s=Temperature"))
	case len(nodes) > maxNodes:
		errs = append(errs, fmt.Errorf("NODES has %d nodes: must have at most %d", len(nodes), maxNodes))
	}
	return nodes, errors.Join(errs...)
}

func (v variables) interval() (time.Duration, error) {
	text := v.get("OPCUA_INTERVAL")
	if text == "" {
		return defaultInterval, nil
	}
	interval, err := time.ParseDuration(text)
	if err != nil || interval < minInterval || interval > maxInterval {
		return 0, fmt.Errorf("OPCUA_INTERVAL=%q: must be a duration from %s to %s, such as 500ms", text, minInterval, maxInterval)
	}
	return interval, nil
}

// topic excludes wildcards and the topics of the MQTT broker.
var topic = regexp.MustCompile(`^[^$#+/\x00][^#+\x00]*[^#+/\x00]$|^[^$#+/\x00]$`)

func (v variables) mqtt() (*mqtt.Settings, error) {
	if v.get("MQTT_URL") == "" {
		return nil, nil
	}
	var errs []error
	check := func(err error) { errs = append(errs, err) }
	address, err := mqttURL(v.get("MQTT_URL"))
	check(err)
	password, err := v.secret("MQTT_PASSWORD")
	check(err)
	retain, err := v.boolean("MQTT_RETAIN")
	check(err)
	plain, err := v.boolean("MQTT_ALLOW_PLAIN_TEXT")
	check(err)
	s := &mqtt.Settings{
		URL: address, Topic: v.get("MQTT_TOPIC"), ClientID: v.or("MQTT_CLIENT_ID", v.get("HOSTNAME")),
		Username: v.get("MQTT_USERNAME"), Password: password, Retain: retain,
		CAFile: v.get("MQTT_CA_FILE"), CertFile: v.get("MQTT_CERT_FILE"), KeyFile: v.get("MQTT_KEY_FILE"),
	}
	if !topic.MatchString(s.Topic) {
		check(fmt.Errorf("MQTT_TOPIC=%q: must be the first part of the topics, such as plant/boiler, without # and +", s.Topic))
	}
	if (s.Username == "") != (password == nil) {
		check(errors.New("MQTT_USERNAME and MQTT_PASSWORD (or MQTT_PASSWORD_FILE): set both or none"))
	}
	if (s.CertFile == "") != (s.KeyFile == "") {
		check(errors.New("MQTT_CERT_FILE and MQTT_KEY_FILE: set both or none"))
	}
	if address != nil && address.Scheme == "mqtt" {
		if s.CAFile != "" || s.CertFile != "" {
			check(errors.New("MQTT_CA_FILE and MQTT_CERT_FILE need TLS: MQTT_URL must begin with mqtts://"))
		}
		if s.Username != "" && !plain {
			check(errors.New("MQTT_URL: the password would be sent without encryption: use mqtts://, or set MQTT_ALLOW_PLAIN_TEXT=true"))
		}
	}
	return s, errors.Join(errs...)
}

func mqttURL(text string) (*url.URL, error) {
	ports := map[string]string{"mqtt": "1883", "mqtts": "8883"}
	address, err := url.Parse(text)
	if err != nil { // the text may have a password
		return nil, errors.New("MQTT_URL: must be mqtt://HOST[:PORT] or mqtts://HOST[:PORT]")
	}
	port, known := ports[address.Scheme]
	if !known || address.Hostname() == "" || strings.Trim(address.Path, "/") != "" {
		return nil, fmt.Errorf("MQTT_URL=%q: must be mqtt://HOST[:PORT] or mqtts://HOST[:PORT]", address.Redacted())
	}
	if address.User != nil {
		return nil, errors.New("MQTT_URL: must not have a user; set MQTT_USERNAME and MQTT_PASSWORD")
	}
	if address.Port() == "" {
		address.Host = net.JoinHostPort(address.Hostname(), port)
	}
	return address, nil
}

func (v variables) or(name, standard string) string {
	if value := v.get(name); value != "" {
		return value
	}
	return standard
}

func (v variables) boolean(name string) (bool, error) {
	switch v.get(name) {
	case "", "false":
		return false, nil
	case "true":
		return true, nil
	}
	return false, fmt.Errorf("%s=%q: must be true or false", name, v.get(name))
}

// secret returns a function that returns the value of a variable, or the current content of the
// file that the variable NAME_FILE names. It is nil if neither is set.
func (v variables) secret(name string) (func() (string, error), error) {
	value, file := v.get(name), v.get(name+"_FILE")
	switch {
	case value != "" && file != "":
		return nil, fmt.Errorf("%s and %s_FILE: set one of them", name, name)
	case value != "":
		return func() (string, error) { return value, nil }, nil
	case file == "":
		return nil, nil
	}
	read := func() (string, error) {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("%s_FILE: %w", name, err)
		}
		return strings.TrimRight(string(text), "\r\n"), nil
	}
	_, err := read()
	return read, err
}

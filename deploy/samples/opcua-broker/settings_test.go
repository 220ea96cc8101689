package opcuabroker_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"akri.sh/libs/broker/brokertest"

	opcuabroker "akri.sh/deploy/samples/opcua-broker"
)

const (
	url   = "OPCUA_DISCOVERY_URL=opc.tcp://192.0.2.1:4840/"
	nodes = "NODES=temperature: ns=2;s=Thermometer_Temperature"
	plain = "ALLOW_PLAIN_TEXT=true"
)

func TestSettings(t *testing.T) {
	for name, environ := range map[string][]string{
		"the least":                {url, nodes, plain},
		"upstream Akri's":          {"OPCUA_DISCOVERY_URL_8120FE=opc.tcp://h:1/", "IDENTIFIER=Thermometer_Temperature", "NAMESPACE_INDEX=2", plain},
		"both forms of one device": {url, "OPCUA_DISCOVERY_URL_8120FEX012345=opc.tcp://192.0.2.1:4840/", nodes, plain},
		"all kinds of node ids":    {url, "NODES=\na: i=2258\n  b: ns=1;g=08081e75-8e5e-319b-954f-f3a7613dc29b\nc: ns=1;b=YQ==\nd: nsu=urn:x;s=a:b=c;d\n", plain},
		"MQTT":                     {url, nodes, plain, "MQTT_URL=mqtts://h", "MQTT_TOPIC=plant/boiler", "MQTT_USERNAME=u", "MQTT_PASSWORD=p", "MQTT_RETAIN=true"},
		"MQTT in plain text":       {url, nodes, plain, "MQTT_URL=mqtt://h:1", "MQTT_TOPIC=p", "MQTT_USERNAME=u", "MQTT_PASSWORD=p", "MQTT_ALLOW_PLAIN_TEXT=true"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := opcuabroker.Read(environ)
			require.NoError(t, err)
		})
	}

	settings, err := opcuabroker.Read([]string{"OPCUA_DISCOVERY_URL_8120FE=opc.tcp://h:1/", "IDENTIFIER=a/b", "NAMESPACE_INDEX=2", nodes, plain, "MQTT_URL=mqtts://h", "MQTT_TOPIC=t"})
	require.NoError(t, err)
	require.Equal(t, "opc.tcp://h:1/", settings.OPCUA.URL)
	require.Equal(t, "None", settings.OPCUA.Mode)
	require.Equal(t, "a_b", settings.OPCUA.Nodes[0].Name)
	require.Equal(t, "ns=2;s=a/b", settings.OPCUA.Nodes[0].ID)
	require.Equal(t, "temperature", settings.OPCUA.Nodes[1].Name)
	require.Equal(t, "h:8883", settings.MQTT.URL.Host)
	require.Equal(t, ":8083", settings.Address)
}

// TestSettingsOfDevices sets each setting of README.md as a device does, with and without the
// digest. Nodes choose the properties of devices, so these do not set where a password or values
// are sent, or who may read them.
func TestSettingsOfDevices(t *testing.T) {
	properties := map[string]string{
		"OPCUA_DISCOVERY_URL": "opc.tcp://192.0.2.2:4840/", "OPCUA_APPLICATION_URI": "urn:x", "IDENTIFIER": "a", "NAMESPACE_INDEX": "2", "NODES": "a: i=1",
	}
	others := map[string]string{
		"OPCUA_INTERVAL": "2s", "ADDRESS": ":1", "OPCUA_SECURITY_MODE": "Sign", "OPCUA_SECURITY_POLICY": "Basic256Sha256",
		"OPCUA_PKI_DIRECTORY": t.TempDir(), "OPCUA_USERNAME": "u", "OPCUA_PASSWORD": "p", "OPCUA_PASSWORD_FILE": "/p", "OPCUA_ALLOW_PLAIN_TEXT": "true",
		"TLS_CERT_FILE": "/c", "TLS_KEY_FILE": "/k", "TOKEN_FILE": "/t", "ALLOW_PLAIN_TEXT": "true",
		"MQTT_URL": "mqtts://other", "MQTT_TOPIC": "other", "MQTT_CLIENT_ID": "c", "MQTT_USERNAME": "u", "MQTT_PASSWORD": "p", "MQTT_PASSWORD_FILE": "/p",
		"MQTT_CA_FILE": "/ca", "MQTT_CERT_FILE": "/c", "MQTT_KEY_FILE": "/k", "MQTT_RETAIN": "true", "MQTT_ALLOW_PLAIN_TEXT": "true",
	}
	base := []string{"MQTT_URL=mqtt://h", "MQTT_TOPIC=t", "MQTT_USERNAME=base", "IDENTIFIER=base"}
	brokertest.CheckProperties(t, "README.md", base, properties, others, func(environ []string) (any, error) {
		return opcuabroker.Read(environ)
	})
}

// TestInvalidSettings checks that messages name the setting and what would be right, and that none
// has a password.
func TestInvalidSettings(t *testing.T) {
	pki := t.TempDir()
	for name, c := range map[string]struct {
		environ []string
		err     string
	}{
		"nothing": {nil, `OPCUA_DISCOVERY_URL is not set: the Pod must request a device of the handler opcua
NODES is not set: list the nodes to monitor, one on each line, such as temperature: ns=2;s=Temperature
TLS_CERT_FILE and TLS_KEY_FILE are not set: mount a Secret with a certificate; or set ALLOW_PLAIN_TEXT=true, with which all clients that reach the Pod can read its data
TOKEN_FILE is not set: mount a Secret with a token; or set ALLOW_PLAIN_TEXT=true, with which all clients that reach the Pod can read its data`},
		"URL": {[]string{"OPCUA_DISCOVERY_URL=http://h:1/", nodes, plain}, `OPCUA_DISCOVERY_URL="http://h:1/": must be opc.tcp://HOST:PORT[/PATH]`},
		"nodes": {[]string{url, plain, "NODES=a b\nc: Temperature\nd/e: i=1\nf: ns=x;i=1\ng: i=1\ng: i=2"},
			`NODES, line 1: "a b": must be NAME: NODE_ID, such as temperature: ns=2;s=Temperature
NODES, line 2: "Temperature": must be a node id such as ns=2;s=Temperature
NODES, line 3: the name "d/e" must have 1 to 64 letters, digits and _ . -
NODES, line 4: "ns=x;i=1": must be a node id such as ns=2;s=Temperature: opcua: invalid namespace id: ns=x;i=1
NODES, line 6: NODES, line 5 has the name "g", too`},
		"namespace": {[]string{url, plain, "IDENTIFIER=a"}, `NAMESPACE_INDEX="": must be a number from 0 to 65535, the namespace of IDENTIFIER`},
		"security": {[]string{url, nodes, "ALLOW_PLAIN_TEXT=yes", "OPCUA_SECURITY_MODE=sign", "OPCUA_INTERVAL=1", "OPCUA_ALLOW_PLAIN_TEXT=1", "OPCUA_USERNAME=u"},
			`OPCUA_ALLOW_PLAIN_TEXT="1": must be true or false
OPCUA_INTERVAL="1": must be a duration from 50ms to 1m0s, such as 500ms
OPCUA_SECURITY_MODE="sign": must be None, Sign or SignAndEncrypt
OPCUA_USERNAME and OPCUA_PASSWORD (or OPCUA_PASSWORD_FILE): set both or none
ALLOW_PLAIN_TEXT="yes": must be true or false
TLS_CERT_FILE and TLS_KEY_FILE are not set: mount a Secret with a certificate; or set ALLOW_PLAIN_TEXT=true, with which all clients that reach the Pod can read its data
TOKEN_FILE is not set: mount a Secret with a token; or set ALLOW_PLAIN_TEXT=true, with which all clients that reach the Pod can read its data`},
		"no certificate": {[]string{url, nodes, plain, "OPCUA_SECURITY_MODE=Sign", "OPCUA_PKI_DIRECTORY=" + pki},
			"OPCUA_SECURITY_MODE=Sign: " + pki + "/own/certs has 0 certificates: must have one, that of the broker"},
		"policy without mode": {[]string{url, nodes, plain, "OPCUA_SECURITY_POLICY=Basic256Sha256", "OPCUA_PKI_DIRECTORY=" + pki},
			`OPCUA_SECURITY_POLICY="Basic256Sha256": needs OPCUA_SECURITY_MODE Sign or SignAndEncrypt, and certificates in ` + pki},
		"policy": {[]string{url, nodes, plain, "OPCUA_SECURITY_MODE=Sign", "OPCUA_SECURITY_POLICY=None"},
			`OPCUA_SECURITY_POLICY="None": must be one of Aes128_Sha256_RsaOaep, Aes256_Sha256_RsaPss, Basic128Rsa15, Basic256, Basic256Sha256`},
		"two passwords": {[]string{url, nodes, plain, "OPCUA_USERNAME=u", "OPCUA_PASSWORD=secret", "OPCUA_PASSWORD_FILE=/f"},
			"OPCUA_PASSWORD and OPCUA_PASSWORD_FILE: set one of them\nOPCUA_USERNAME and OPCUA_PASSWORD (or OPCUA_PASSWORD_FILE): set both or none"},
		"MQTT": {[]string{url, nodes, plain, "MQTT_URL=mqtt://h", "MQTT_TOPIC=a/#", "MQTT_USERNAME=u", "MQTT_PASSWORD=secret", "MQTT_CA_FILE=/f"},
			`MQTT_TOPIC="a/#": must be the first part of the topics, such as plant/boiler, without # and +
MQTT_CA_FILE and MQTT_CERT_FILE need TLS: MQTT_URL must begin with mqtts://
MQTT_URL: the password would be sent without encryption: use mqtts://, or set MQTT_ALLOW_PLAIN_TEXT=true`},
		"MQTT with a user": {[]string{url, nodes, plain, "MQTT_URL=mqtts://u:secret@h", "MQTT_TOPIC=t"}, "MQTT_URL: must not have a user; set MQTT_USERNAME and MQTT_PASSWORD"},
		"MQTT scheme":      {[]string{url, nodes, plain, "MQTT_URL=https://u:secret@h", "MQTT_TOPIC=t"}, `MQTT_URL="https://u:xxxxx@h": must be mqtt://HOST[:PORT] or mqtts://HOST[:PORT]`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := opcuabroker.Read(c.environ)
			require.EqualError(t, err, c.err)
		})
	}
}

// TestPasswordFile checks that a Secret that changes is read again.
func TestPasswordFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	environ := []string{url, nodes, plain, "OPCUA_USERNAME=u", "OPCUA_PASSWORD_FILE=" + file}
	_, err := opcuabroker.Read(environ)
	require.ErrorContains(t, err, "OPCUA_PASSWORD_FILE: open "+file)
	for _, password := range []string{"one", "two "} {
		require.NoError(t, os.WriteFile(file, []byte(password+"\n"), 0o600))
		settings, err := opcuabroker.Read(environ)
		require.NoError(t, err)
		got, err := settings.OPCUA.Password()
		require.NoError(t, err)
		require.Equal(t, password, got)
	}
}

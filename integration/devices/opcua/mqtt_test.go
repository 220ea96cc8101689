package opcua_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"akri.sh/integration/devices/opcua"
)

// TestBrokerPublishes runs the broker between a server and mosquitto. The client of mosquitto gets
// the values of the server, their changes, and the loss of the server.
func TestBrokerPublishes(t *testing.T) {
	port := freePorts(t, 1)[0]
	server := start(t, opcua.Config{Port: port, URI: "urn:plant", Name: "Plant", Hostname: "127.0.0.1", Nodes: map[string]opcua.Node{
		thermometer: {Type: "UInt32", Value: 71},
	}})[0]
	address, messages := mosquitto(t, "plant/#")
	broker := runBroker(t, map[string]string{
		"OPCUA_DISCOVERY_URL": fmt.Sprintf("opc.tcp://127.0.0.1:%d/UA/Test", port), "ALLOW_PLAIN_TEXT": "true", "OPCUA_INTERVAL": "100ms",
		"NODES": "temperature: ns=2;s=" + thermometer, "MQTT_URL": "mqtt://" + address, "MQTT_TOPIC": "plant/boiler", "MQTT_CLIENT_ID": "test",
	})
	awaitMessage(t, messages, `"value":71`, `"status":"Good"`)
	require.NoError(t, opcua.Set(server, thermometer, 90, ""))
	message := awaitMessage(t, messages, `"value":90`)
	var published, served map[string]any
	require.NoError(t, json.Unmarshal([]byte(message), &published))
	require.NoError(t, json.Unmarshal([]byte(broker.get("/values/temperature")), &served))
	require.Equal(t, served, published)

	server.Stop()
	message = awaitMessage(t, messages, `"status":"BadNotConnected"`)
	require.NotContains(t, message, `"value"`)
	eventually(t, "sent messages in the metrics", func() bool {
		return metric(t, broker.get("/metrics"), `akri_mqtt_messages_total{result="sent"}`) >= 3
	})
}

// mosquitto runs the MQTT broker of Debian's package mosquitto and its client, which subscribes to
// a topic. The channel has the contents of the messages of plant/boiler/temperature.
func mosquitto(t *testing.T, topic string) (address string, messages <-chan string) {
	t.Helper()
	port := freePorts(t, 1)[0]
	address = fmt.Sprintf("127.0.0.1:%d", port)
	config := filepath.Join(t.TempDir(), "mosquitto.conf")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, "listener %d 127.0.0.1\nallow_anonymous true\nuser root\n", port), 0o600))
	output := &lockedBuffer{}
	run := func(command *exec.Cmd) {
		t.Helper()
		command.Stderr = output
		require.NoError(t, command.Start(), "install the Debian packages mosquitto and mosquitto-clients")
		t.Cleanup(func() {
			_ = command.Process.Kill()
			_ = command.Wait()
			if t.Failed() {
				t.Log(output.String())
			}
		})
	}
	run(exec.Command("mosquitto", "-c", config))
	eventually(t, "mosquitto", func() bool {
		conn, err := net.Dial("tcp", address)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})

	// With -d the client also reports its subscription.
	subscriber := exec.Command("stdbuf", "-oL", "mosquitto_sub", "-V", "mqttv5", "-p", strconv.Itoa(port), "-q", "1", "-t", topic, "-F", "%t %p", "-d")
	lines, err := subscriber.StdoutPipe()
	require.NoError(t, err)
	run(subscriber)
	received, subscribed := make(chan string, 1000), make(chan struct{})
	go func() {
		defer close(received)
		for scanner := bufio.NewScanner(lines); scanner.Scan(); {
			if strings.Contains(scanner.Text(), "received SUBACK") {
				close(subscribed)
			}
			if content, found := strings.CutPrefix(scanner.Text(), "plant/boiler/temperature "); found {
				received <- content
			}
		}
	}()
	select {
	case <-subscribed:
	case <-time.After(patience):
		require.Fail(t, "mosquitto_sub has not subscribed")
	}
	return address, received
}

// awaitMessage returns the next message that has all texts.
func awaitMessage(t *testing.T, messages <-chan string, texts ...string) string {
	t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case message, open := <-messages:
			require.True(t, open, "mosquitto_sub has ended")
			matches := true
			for _, text := range texts {
				matches = matches && strings.Contains(message, text)
			}
			if matches {
				return message
			}
		case <-deadline:
			require.Fail(t, "no message", "%v", texts)
		}
	}
}

// Command agent is a stand-in for the agent of upstream Akri 0.13.
package main

import (
	"context"
	"os"

	"go.uber.org/zap"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"akri.sh/integration/adoption/upstream"
)

func main() {
	upstream.Main(func(log *zap.Logger) error {
		config, err := upstream.RESTConfig()
		if err != nil {
			return err
		}
		agent, err := upstream.NewAgent(upstream.AgentConfig{
			Node: os.Getenv("AGENT_NODE_NAME"), HandlersDir: os.Getenv("DISCOVERY_HANDLERS_DIRECTORY"),
			PluginsDir: pluginapi.DevicePluginPath, REST: config, Log: log,
		})
		if err != nil {
			return err
		}
		return agent.Run(context.Background())
	})
}

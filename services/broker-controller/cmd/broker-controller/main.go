// Command broker-controller runs the brokers of Configurations.
package main

import (
	"akri.sh/libs/service"
	brokercontroller "akri.sh/services/broker-controller"
)

func main() {
	service.Main("broker-controller",
		"Creates the broker Pods, Jobs and Services of Instances.",
		brokercontroller.New)
}

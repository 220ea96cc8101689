package opcua

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gopcua/opcua/ua"
)

const (
	// perRequest is the number of nodes in one request. Servers limit it.
	perRequest = 100
	// queueSize is the number of changes that the server keeps for a node between two messages.
	queueSize = 10
	// retryInterval is the time until the broker requests nodes again that the server refused. The
	// program of a controller may add them later.
	retryInterval = time.Minute
)

// errNoNode is the state of a session that monitors nothing.
var errNoNode = errors.New("the OPC UA server monitors none of the nodes")

// monitor monitors the nodes and stores their values, until the session is lost.
func (c *Client) monitor(ctx context.Context, session *session) error {
	missing := make([]int, len(c.settings.Nodes))
	for i := range missing {
		missing[i] = i
	}
	var acknowledge []*ua.SubscriptionAcknowledgement
	var tried time.Time
	for {
		if len(missing) > 0 && time.Since(tried) >= retryInterval {
			refused, err := c.monitorNodes(ctx, session, missing)
			if err != nil {
				return fmt.Errorf("monitor the nodes: %w", err)
			}
			missing, tried = refused, time.Now()
			c.setState(nil)
			if len(missing) == len(c.settings.Nodes) {
				c.setState(errNoNode)
			}
		}
		response, err := session.publish(ctx, acknowledge)
		if err != nil {
			return fmt.Errorf("the session was lost: %w", err)
		}
		message := response.NotificationMessage
		if message == nil {
			return errors.New("the session was lost: the server sent no message")
		}
		acknowledge = nil
		if len(message.NotificationData) > 0 { // otherwise it keeps the subscription alive
			acknowledge = append(acknowledge, &ua.SubscriptionAcknowledgement{
				SubscriptionID: response.SubscriptionID, SequenceNumber: message.SequenceNumber,
			})
		}
		if err := c.accept(message.NotificationData); err != nil {
			return err
		}
	}
}

// publish waits for changes. The server responds after session.silence at the latest, so that a
// request without a response shows that it is away.
func (s *session) publish(ctx context.Context, acknowledge []*ua.SubscriptionAcknowledgement) (*ua.PublishResponse, error) {
	waiting, cancel := context.WithTimeout(ctx, s.silence+responseGrace)
	defer cancel()
	response, err := send[*ua.PublishResponse](waiting, s.client, &ua.PublishRequest{SubscriptionAcknowledgements: acknowledge})
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		err = fmt.Errorf("no response for %s", s.silence+responseGrace)
	}
	return response, err
}

// accept stores the values of a message.
func (c *Client) accept(notifications []*ua.ExtensionObject) error {
	for _, notification := range notifications {
		if notification == nil {
			continue
		}
		switch data := notification.Value.(type) {
		case *ua.DataChangeNotification:
			for _, item := range data.MonitoredItems {
				if item != nil && int64(item.ClientHandle) < int64(len(c.settings.Nodes)) {
					c.store.Set(int(item.ClientHandle), c.settings.Nodes[item.ClientHandle], item.Value)
				}
			}
		case *ua.StatusChangeNotification:
			return fmt.Errorf("the server ended the subscription: %w", data.Status)
		}
	}
	return nil
}

// monitorNodes asks the server to monitor nodes, which are indexes of the settings. It returns
// those that the server refuses.
func (c *Client) monitorNodes(ctx context.Context, session *session, nodes []int) (refused []int, err error) {
	ctx, cancel := context.WithTimeout(ctx, openTimeout)
	defer cancel()
	for first := 0; first < len(nodes); first += perRequest {
		some, err := c.monitorSome(ctx, session, nodes[first:min(first+perRequest, len(nodes))])
		if err != nil {
			return nil, err
		}
		refused = append(refused, some...)
	}
	return refused, nil
}

func (c *Client) monitorSome(ctx context.Context, session *session, nodes []int) (refused []int, err error) {
	request := &ua.CreateMonitoredItemsRequest{
		SubscriptionID: session.subscription, TimestampsToReturn: ua.TimestampsToReturnBoth,
	}
	var asked []int
	for _, i := range nodes {
		id, err := ParseNodeID(c.settings.Nodes[i].ID, session.client.Namespaces())
		if err != nil { // the server has no such namespace
			refused = append(refused, i)
			c.refuse(i, ua.StatusBadNodeIDUnknown, err)
			continue
		}
		asked = append(asked, i)
		request.ItemsToCreate = append(request.ItemsToCreate, &ua.MonitoredItemCreateRequest{
			ItemToMonitor:  &ua.ReadValueID{NodeID: id, AttributeID: ua.AttributeIDValue, DataEncoding: &ua.QualifiedName{}},
			MonitoringMode: ua.MonitoringModeReporting,
			RequestedParameters: &ua.MonitoringParameters{
				ClientHandle: uint32(i), SamplingInterval: float64(c.settings.Interval.Milliseconds()),
				QueueSize: queueSize, DiscardOldest: true,
			},
		})
	}
	if len(asked) == 0 {
		return refused, nil
	}
	response, err := send[*ua.CreateMonitoredItemsResponse](ctx, session.client, request)
	if err != nil {
		return nil, err
	}
	if len(response.Results) != len(asked) {
		return nil, fmt.Errorf("the server returned %d results for %d nodes", len(response.Results), len(asked))
	}
	for k, result := range response.Results {
		if result.StatusCode>>30 > 1 { // bad
			refused = append(refused, asked[k])
			c.refuse(asked[k], result.StatusCode, result.StatusCode)
		}
	}
	return refused, nil
}

// refuse stores and logs why the server does not monitor a node.
func (c *Client) refuse(i int, status ua.StatusCode, reason error) {
	node := c.settings.Nodes[i]
	message := fmt.Sprintf("%s: the server does not monitor %s: %v", node.Setting, node.ID, reason)
	if before, _ := c.store.Get(node.Name); before.Error != message {
		c.log.Warn("a node is not monitored", "node", node.Name, "error", message)
	}
	c.store.SetBad(i, node, status, message)
}

// ParseNodeID parses a node id, ns=INDEX;KIND=IDENTIFIER, or nsu=URI;KIND=IDENTIFIER with a URI of
// the namespaces. The kinds are i, s, g and b.
func ParseNodeID(text string, namespaces []string) (*ua.NodeID, error) {
	if !strings.Contains(text, "=") {
		return nil, fmt.Errorf("%q: must be a node id such as ns=2;s=Temperature", text)
	}
	parsed, err := ua.ParseExpandedNodeID(text, namespaces)
	if err != nil {
		return nil, fmt.Errorf("%q: must be a node id such as ns=2;s=Temperature: %w", text, err)
	}
	return ua.NewNodeIDFromExpandedNodeID(parsed), nil
}

// NamespaceOf returns the namespace of nsu=URI;KIND=IDENTIFIER, to check a node id without a
// server.
func NamespaceOf(text string) []string {
	rest, _ := strings.CutPrefix(text, "nsu=")
	uri, _, _ := strings.Cut(rest, ";")
	return []string{uri}
}

package soak

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"akri.sh/integration/devices"
)

// udevHandler is the name of handler-udev.
const udevHandler = "udev"

// plugTimeout limits the time until no process has a device open.
const plugTimeout = 30 * time.Second

// plugZram plugs in block devices, which all nodes see as local devices of their own, and adds a
// Configuration for them to the model. Its rules match these devices only.
func (s *soak) plugZram(ctx context.Context) error {
	c := &configuration{
		name: "soak-zram", handler: udevHandler, broker: podBroker, capacities: []int32{1, 2}, capacity: 1, present: map[place]int{},
	}
	for range s.Zram {
		zram, err := devices.PlugZram(ctx, "soak")
		if err != nil {
			return err
		}
		s.zram = append(s.zram, &block{Zram: zram, present: true})
		c.places = append(c.places, places(zram, s.Nodes)...)
	}
	for _, p := range c.places {
		c.present[p] = 0
	}
	if len(c.places) > 0 {
		s.model.update(func() { s.model.configurations = append(s.model.configurations, c) })
	}
	return nil
}

// block is a block device that can be plugged in again.
type block struct {
	*devices.Zram
	present bool
}

func places(zram *devices.Zram, nodes []string) (places []place) {
	for _, node := range nodes {
		places = append(places, place{node, zram.DevPath()})
	}
	return places
}

// rules are the discoveryDetails that match all devices of the Configuration.
func (c *configuration) rules() string {
	text, seen := "udevRules:\n", map[string]bool{}
	for _, p := range c.places {
		if name := p.device[strings.LastIndexByte(p.device, '/')+1:]; !seen[name] {
			seen[name] = true
			text += fmt.Sprintf("- SUBSYSTEM==\"block\", KERNEL==%q\n", name)
		}
	}
	return text
}

// changeZram unplugs a block device or plugs it in again.
func (s *soak) changeZram(ctx context.Context, random *rand.Rand) (string, error) {
	for _, c := range s.model.configurations {
		if c.handler == udevHandler && s.matches(c) {
			b := s.zram[random.IntN(len(s.zram))]
			return s.toggle(ctx, c, b)
		}
	}
	return "", nil
}

func (s *soak) toggle(ctx context.Context, c *configuration, b *block) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, plugTimeout)
	defer cancel()
	if b.present {
		s.model.update(func() { c.removed = time.Now() })
		s.setPresent(c, b, false)
		return b.Name() + " unplugged", b.Unplug(ctx)
	}
	for _, p := range places(b.Zram, s.Nodes) {
		if !s.free(c, c.instance(p)) {
			return "", nil
		}
	}
	return s.plug(ctx, c, b)
}

// plug plugs in a device. It does nothing if the kernel gives it another number, which is so while
// another process uses the number.
func (s *soak) plug(ctx context.Context, c *configuration, b *block) (string, error) {
	// The Instances can exist before PlugZram returns.
	s.setPresent(c, b, true)
	zram, err := devices.PlugZram(ctx, "soak")
	if err == nil && zram.Name() == b.Name() {
		b.Zram = zram
		return b.Name() + " plugged in", nil
	}
	s.setPresent(c, b, false)
	if err == nil {
		err = zram.Unplug(ctx)
	}
	return "", err
}

// setPresent changes whether a device exists on all nodes.
func (s *soak) setPresent(c *configuration, b *block, present bool) {
	s.model.update(func() {
		for _, p := range places(b.Zram, s.Nodes) {
			if present {
				c.present[p] = 0
			} else {
				delete(c.present, p)
			}
		}
		b.present = present
	})
}

// plugAll plugs in all block devices that are not plugged in.
func (s *soak) plugAll(ctx context.Context) error {
	for _, c := range s.model.configurations {
		if c.handler != udevHandler {
			continue
		}
		for _, b := range s.zram {
			if b.present {
				continue
			}
			if _, err := s.plug(ctx, c, b); err != nil {
				return err
			}
			if !b.present {
				return fmt.Errorf("plug in %s: another process uses the number", b.Name())
			}
		}
	}
	return nil
}

// unplugZram unplugs all block devices.
func (s *soak) unplugZram(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), plugTimeout)
	defer cancel()
	var err error
	for _, b := range s.zram {
		err = errors.Join(err, b.Unplug(ctx))
	}
	return err
}

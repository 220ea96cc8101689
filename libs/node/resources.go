package node

import (
	"context"
	"sync"

	instancev1 "akri.sh/proto/akri/instance/v1"
)

// ResourcesAuto is the value of the flag --resources with which a service of the node offers
// devices only while instance-writer states that Pods on the node get them from it.
const ResourcesAuto = "auto"

// RunWhile calls run while Pods on this node get devices in the wanted form. When the form changes
// it ends the context of run and waits until run has returned. It calls run again when the form
// returns. It returns nil when ctx ends, and what run returns if run returns by itself.
func (s *Store) RunWhile(ctx context.Context, wanted instancev1.Resources, run func(context.Context) error) error {
	is := func(snapshot *Snapshot) bool { return snapshot.Resources == wanted }
	isNot := func(snapshot *Snapshot) bool { return snapshot.Resources != wanted }
	for s.await(ctx, is) {
		running, end := context.WithCancel(ctx)
		var following sync.WaitGroup
		following.Go(func() {
			defer end()
			s.await(running, isNot)
		})
		err := run(running)

		returned := running.Err() == nil
		end()
		following.Wait()
		if err != nil || returned {
			return err
		}
	}
	return nil
}

// await waits for a snapshot that fulfills the condition, or returns false when ctx ends before.
func (s *Store) await(ctx context.Context, condition func(*Snapshot) bool) bool {
	for ctx.Err() == nil {
		snapshot, changed := s.Get()
		if condition(snapshot) {
			return true
		}
		select {
		case <-ctx.Done():
		case <-changed:
		}
	}
	return false
}

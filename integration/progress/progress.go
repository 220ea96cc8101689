// Package progress shows that long steps still run.
package progress

import "time"

// While calls do, and calls show with the time since the start at each interval until do returns.
// It returns the error of do.
func While(interval time.Duration, show func(time.Duration), do func() error) error {
	started := time.Now()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	ended := make(chan error, 1)
	go func() { ended <- do() }()
	for {
		select {
		case err := <-ended:
			return err
		case <-ticker.C:
			show(time.Since(started))
		}
	}
}

package decision

import (
	"context"
	"time"
)

// Reconcile decides once.
func (r *Recorder) Reconcile(ctx context.Context) (time.Duration, error) { return r.reconcile(ctx) }

// Connection is connection.
var Connection = connection

package claims

import (
	"maps"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// rememberUnprepared exceeds the time for which a preparation can be in progress.
const rememberUnprepared = time.Minute

var errUnprepared = status.Error(codes.Aborted, "the claim was unprepared meanwhile")

// unprepared remembers the claims that were unprepared and not prepared again. A preparation that
// began before must not succeed later: the kubelet has forgotten the claim, so nothing would ever
// release its slot. The kubelet unprepares the claims of deleted Pods once a minute, without
// waiting for calls in progress.
type unprepared struct {
	mu sync.Mutex
	at map[string]time.Time
}

func (u *unprepared) add(uid string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(u.at, func(_ string, at time.Time) bool { return now.Sub(at) > rememberUnprepared })
	u.at[uid] = now
}

func (u *unprepared) remove(uid string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	delete(u.at, uid)
}

func (u *unprepared) has(uid string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	_, unprepared := u.at[uid]
	return unprepared
}

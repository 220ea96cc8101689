package reviews

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestFailuresOfAnAddressAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimits()
		for range failureBurst {
			require.NoError(t, l.admit("192.0.2.1:1000"))
			l.failed("192.0.2.1:2000")
		}
		var limit *LimitError
		require.ErrorAs(t, l.admit("192.0.2.1:3000"), &limit)
		require.LessOrEqual(t, limit.RetryAfter, failureInterval)
		require.NoError(t, l.admit("192.0.2.2:1000"), "another address")
		require.NoError(t, l.admit("127.0.0.1:1000"), "a proxy")
		<-time.After(limit.RetryAfter)
		require.NoError(t, l.admit("192.0.2.1:3000"))

		for range failureBurst {
			l.failed("[2001:db8::1]:1000")
		}
		require.ErrorAs(t, l.admit("[2001:db8::ffff:1]:1000"), &limit, "the same network")
		require.NoError(t, l.admit("[2001:db8:0:1::1]:1000"))
	})
}

func TestNewTokensAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimits()
		for range newTokenBurst {
			require.NoError(t, l.admit("127.0.0.1:1000"))
		}
		var limit *LimitError
		require.ErrorAs(t, l.admit("127.0.0.1:1000"), &limit)
		<-time.After(time.Second)
		require.NoError(t, l.admit("127.0.0.1:1000"))
	})
}

func TestTokensThatNeedNoReview(t *testing.T) {
	for _, token := range []string{
		"", "two words", "line\r\nSet-Cookie: a=b", "a;b", "ä", string(make([]byte, maxTokenBytes)),
		"e30.eyJleHAiOjF9.e30", // {"exp":1}
	} {
		require.NotNil(t, check(token), "%q", token)
	}
	for _, token := range []string{"opaque", "a.b.c", "e30.e30.e30", "abc+/~_-==", "e30.eyJleHAiOjk5OTk5OTk5OTl9.e30"} {
		require.Nil(t, check(token), token)
	}
}

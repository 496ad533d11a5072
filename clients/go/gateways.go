package longhaul

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// A gateway closes connections that are idle for 10 s.
	idleTime    = 5 * time.Second
	answerBytes = 64 << 20

	pauseMin      = 200 * time.Millisecond
	pauseMax      = 5 * time.Second
	retryAfterMax = 30 * time.Second
)

type gateway struct {
	url *url.URL
	// No request goes to the gateway before this time, unless all gateways rest.
	resting time.Time
}

func newGateway(address string) (*gateway, error) {
	parsed, err := url.Parse(strings.TrimRight(strings.TrimSpace(address), "/"))
	if err != nil {
		return nil, fmt.Errorf("the URL of a gateway: %w", err)
	}
	isHTTP := parsed.Scheme == "http" || parsed.Scheme == "https"
	if !isHTTP || parsed.Hostname() == "" || parsed.User != nil || parsed.RawQuery != "" || parsed.Fragment != "" {
		return nil, fmt.Errorf("%q is not the URL of a gateway: http://HOST:PORT or https://HOST:PORT", address)
	}
	return &gateway{url: parsed}, nil
}

// gateways sends requests to several gateways. Any gateway answers any request.
type gateways struct {
	http  *http.Client
	token func() string
	all   []*gateway

	mutex   sync.Mutex
	current *gateway
}

func newGateways(addresses []string, token func() string, transport http.RoundTripper) (*gateways, error) {
	if transport == nil {
		// Without the proxies of the environment: a proxy would see the token.
		transport = &http.Transport{
			IdleConnTimeout:     idleTime,
			MaxIdleConnsPerHost: 8,
			TLSHandshakeTimeout: 10 * time.Second,
			DialContext:         (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
			ForceAttemptHTTP2:   true,
		}
	}
	// A redirect would take the token to another host.
	refuse := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	all := &gateways{http: &http.Client{Transport: transport, CheckRedirect: refuse}, token: token}
	for _, address := range addresses {
		one, err := newGateway(address)
		if err != nil {
			return nil, err
		}
		all.all = append(all.all, one)
	}
	all.current = all.all[0]
	return all, nil
}

type request struct {
	method, path string
	// Sent as JSON, unless it is nil.
	body any
	// The time limit of an attempt.
	timeout time.Duration
	// How long to repeat the request after its first failure.
	patience time.Duration
	// Whether a repeat does no harm if the request has taken effect.
	repeatable bool
	// Whether an attempt goes on after the end of the context. A lease request must, because it may
	// just have got a task.
	unbroken bool
	// The fields that the answer must have; it is not a gateway's otherwise. Without fields, or if it
	// mayBeEmpty, an answer may have no body.
	expects    []string
	mayBeEmpty bool
	// The request is about a lease. It heeds only these pauses, and is repeated until there is a
	// verdict. A proxy's Retry-After is ignored, since it must not cost the lease. A gateway's is
	// limited to a third of the time that the lease lasts.
	pauses map[*gateway]time.Time
	lasts  time.Duration
}

// do sends a request until a gateway answers it, and decodes the answer unless it has no body. A
// *[]byte gets the body itself. A request that may have taken effect is repeated only if it is
// repeatable.
func (all *gateways) do(ctx context.Context, wanted request, answer any) error {
	var content []byte
	if wanted.body != nil {
		var err error
		if content, err = encoded(wanted.body); err != nil {
			return err
		}
	}
	var giveUp time.Time
	failure, isUnknown, pause := ErrUnreachable, false, pauseMin
	for {
		// A pause that a gateway asked for applies to all requests of the client, but for those about
		// leases.
		to, free := all.pick(wanted.pauses)
		if err := sleep(ctx, time.Until(free)); err != nil {
			return unknown(isUnknown, fmt.Errorf("%w: %w", failure, err))
		}
		err := all.once(ctx, to, wanted, content, answer)
		if err == nil {
			return nil
		}
		failure = err
		var refused *GatewayError
		var retryAfter time.Duration
		if errors.As(err, &refused) {
			if refused.isVerdict() || !refused.isUnavailable() && wanted.pauses == nil {
				return unknown(isUnknown, err)
			}
			switch {
			case wanted.pauses == nil:
				retryAfter = refused.RetryAfter
			case !refused.isOfProxy():
				retryAfter = min(refused.RetryAfter, wanted.lasts/3)
			}
		}
		isUnknown = isUnknown || errors.Is(err, ErrOutcomeUnknown) || (refused != nil && refused.mayBeDone())
		if (isUnknown && !wanted.repeatable) || ctx.Err() != nil {
			return unknown(isUnknown, err)
		}
		now := time.Now()
		if giveUp.IsZero() {
			giveUp = now.Add(wanted.patience)
		}
		free = all.rest(to, now.Add(max(retryAfter, jittered(pause))), wanted.pauses)
		pause = min(2*pause, pauseMax)
		if free.After(giveUp) || now.After(giveUp) {
			return unknown(isUnknown, err)
		}
	}
}

// After an attempt with an unknown outcome, a later error does not say that nothing was done.
func unknown(isUnknown bool, err error) error {
	if isUnknown && !errors.Is(err, ErrOutcomeUnknown) {
		return fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
	}
	return err
}

// encoded returns the JSON of a body. It escapes no characters of HTML, since each would take 6 bytes.
func encoded(body any) ([]byte, error) {
	var content bytes.Buffer
	encoder := json.NewEncoder(&content)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(body)
	return content.Bytes(), err
}

// usable returns the token without space around it. It fails if no gateway can have issued the token,
// with an error that does not show it.
func usable(token string) (string, error) {
	token = strings.TrimSpace(token)
	if token == "" {
		return "", errors.New("the token is empty")
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", errors.New("the token has characters that no token has")
	}
	return token, nil
}

// decode fails if the answer is not what a gateway would say: a proxy may answer anything, also with
// 200.
func decode(response *http.Response, body []byte, wanted request, answer any) error {
	if raw, isRaw := answer.(*[]byte); isRaw {
		if kind := response.Header.Get("Content-Type"); kind != "application/octet-stream" {
			return fmt.Errorf("the answer has the content type %q", kind)
		}
		*raw = body
		return nil
	}
	if response.StatusCode == http.StatusNoContent && (wanted.mayBeEmpty || len(wanted.expects) == 0) {
		return nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil {
		return err
	}
	if fields == nil {
		return errors.New("the answer is null")
	}
	for _, field := range wanted.expects {
		if _, isThere := fields[field]; !isThere {
			return fmt.Errorf("the answer has no field %q", field)
		}
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(body, answer)
}

// once makes one attempt, and decodes the answer.
func (all *gateways) once(ctx context.Context, to *gateway, wanted request, content []byte, answer any) error {
	if wanted.unbroken {
		ctx = context.WithoutCancel(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, wanted.timeout)
	defer cancel()
	// While the client waits for a connection, nothing was sent.
	var isConnecting atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(string) { isConnecting.Store(true) },
		GotConn: func(httptrace.GotConnInfo) { isConnecting.Store(false) },
	})
	sent, err := http.NewRequestWithContext(ctx, wanted.method, to.url.String()+wanted.path, bytes.NewReader(content))
	if err != nil {
		return err
	}
	sent.Header.Set("User-Agent", "longhaul-go/"+Version)
	if content != nil {
		sent.Header.Set("Content-Type", "application/json")
	}
	if all.token != nil {
		token, err := usable(all.token())
		if err != nil {
			// Such as a file that is being replaced: the next attempt may find one.
			return fmt.Errorf("%w: there is no token: %w", ErrUnreachable, err)
		}
		sent.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := all.http.Do(sent)
	if err != nil {
		if isConnecting.Load() {
			return fmt.Errorf("%w: %w", ErrUnreachable, err)
		}
		return fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, answerBytes+1))
	if err == nil && len(body) > answerBytes {
		err = fmt.Errorf("the answer has more than %d bytes", answerBytes)
	}
	if err == nil && response.StatusCode >= 300 {
		return refusal(response.StatusCode, response.Header, body)
	}
	if err == nil {
		err = decode(response, body, wanted, answer)
	}
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrOutcomeUnknown, to.url.Host, err)
	}
	return nil
}

// pick returns the gateway of the last request, unless it rests; then the one that rests shortest.
// The time is the end of its rest. With pauses, these count, and the rests only between gateways that
// have none.
func (all *gateways) pick(pauses map[*gateway]time.Time) (*gateway, time.Time) {
	all.mutex.Lock()
	defer all.mutex.Unlock()
	now := time.Now()
	if pauses != nil {
		best := slices.MinFunc(append([]*gateway{all.current}, all.all...), func(one, other *gateway) int {
			return cmp.Or(
				cmp.Compare(max(pauses[one].Sub(now), 0), max(pauses[other].Sub(now), 0)),
				cmp.Compare(max(one.resting.Sub(now), 0), max(other.resting.Sub(now), 0)))
		})
		return best, pauses[best]
	}
	if all.current.resting.After(now) {
		// The first of those whose rest is over, in the order in which they were configured.
		all.current = slices.MinFunc(all.all, func(one, other *gateway) int {
			return cmp.Compare(max(one.resting.Sub(now), 0), max(other.resting.Sub(now), 0))
		})
	}
	return all.current, all.current.resting
}

// rest leaves a gateway alone, and returns when a request may go to any gateway.
func (all *gateways) rest(one *gateway, until time.Time, pauses map[*gateway]time.Time) time.Time {
	all.mutex.Lock()
	one.resting = until
	all.mutex.Unlock()
	if pauses != nil {
		pauses[one] = until
	}
	_, free := all.pick(pauses)
	return free
}

// jittered shortens a pause by up to a half, so that many clients do not return at once.
func jittered(pause time.Duration) time.Duration {
	return pause/2 + rand.N(pause/2)
}

// sleep waits, and returns an error if the context ends first.
func sleep(ctx context.Context, pause time.Duration) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(max(pause, 0)):
		return nil
	}
}

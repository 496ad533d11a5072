// Package longhaul has workers and submitters for longhaul: long-running tasks on Apache Pulsar. It
// speaks HTTP with a gateway and needs only the standard library.
package longhaul

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
	"unicode/utf8"
)

// Version is the version of the gateway that the package is made for.
const Version = "0.1.0"

// The time that a gateway waits for the end of a task in one request.
const waitTime = 20 * time.Second

// The length up to which text is sent as it is.
const shortText = 64 << 10

// Config has the settings of a [Client]. All are optional.
type Config struct {
	// Gateways are URLs. By default LONGHAUL_GATEWAY has them, separated by commas, or else it is
	// http://127.0.0.1:7070.
	Gateways []string
	// Token returns the bearer token; it is called for each request. While it returns no usable
	// token, such as an empty one, the request is repeated. By default the client sends
	// LONGHAUL_TOKEN, if it is set. A token goes to the hosts of Gateways only.
	Token func() string
	// Transport sends the requests. Set it to trust a certificate authority of your own, to show a
	// client certificate, or to use a proxy.
	Transport http.RoundTripper
	// Patience is how long a request is repeated while no gateway serves it (30 s by default; not at
	// all if it is negative; [math.MaxInt64] for no limit).
	Patience time.Duration
}

// Client submits tasks to the gateways of one cluster. Goroutines may share it.
type Client struct {
	gateways *gateways
	patience time.Duration
}

// NewClient returns a client. It fails if the URL of a gateway or LONGHAUL_TOKEN is not valid.
func NewClient(config Config) (*Client, error) {
	if len(config.Gateways) == 0 {
		config.Gateways = strings.Split(cmp.Or(os.Getenv("LONGHAUL_GATEWAY"), "http://127.0.0.1:7070"), ",")
	}
	if token := strings.TrimSpace(os.Getenv("LONGHAUL_TOKEN")); config.Token == nil && token != "" {
		if _, err := usable(token); err != nil {
			return nil, fmt.Errorf("LONGHAUL_TOKEN: %w", err)
		}
		config.Token = func() string { return token }
	}
	all, err := newGateways(config.Gateways, config.Token, config.Transport)
	if err != nil {
		return nil, err
	}
	return &Client{gateways: all, patience: cmp.Or(config.Patience, 30*time.Second)}, nil
}

// Submission is a task to submit. Fields with their zero value are not sent.
type Submission struct {
	// Payload is what the worker gets, byte for byte, such as a [json.RawMessage].
	Payload []byte `json:"-"`
	// Type is the kind of the task: workers may lease tasks of some types only.
	Type string `json:"type,omitempty"`
	// Key is your name for the task.
	Key string `json:"key,omitempty"`
	// Tags are words to find the task by.
	Tags []string `json:"tags,omitempty"`
	// Properties go to the worker.
	Properties map[string]string `json:"properties,omitempty"`
	// Priority is high, normal or low, on a queue with levels.
	Priority string `json:"priority,omitempty"`
	// Delay is the least time before the first attempt.
	Delay time.Duration `json:"-"`
	// ScheduledAt is the earliest start of the first attempt.
	ScheduledAt time.Time `json:"-"`
	// ExpiresAt is the latest start of an attempt.
	ExpiresAt time.Time `json:"-"`
	// IdempotencyKey names the task: a second submit with it returns the id of the first. Submit
	// sets a random key if there is neither this key nor a DedupeKey.
	IdempotencyKey string `json:"idempotency_key,omitempty"`
	// DedupeKey admits one unfinished task with this key.
	DedupeKey string `json:"dedupe_key,omitempty"`
	// Overwrite replaces the unfinished task that has the DedupeKey.
	Overwrite bool `json:"overwrite,omitempty"`
	// Strict makes another payload under the same key an error.
	Strict bool `json:"strict,omitempty"`
	// OrderKey runs the tasks with this key one at a time, in the order of their submission.
	OrderKey string `json:"order_key,omitempty"`
	// LimitKey applies the limits that the queue has for this key.
	LimitKey string `json:"limit_key,omitempty"`
	// After has the ids of tasks that must end first.
	After []string `json:"after,omitempty"`
	// AfterKeys has the idempotency or dedupe keys of tasks that must end first.
	AfterKeys []string `json:"after_keys,omitempty"`
	// AfterFailed says what follows if such a task has no result: fail, skip or run.
	AfterFailed string `json:"after_failed,omitempty"`
	// MaxAttempts is the most attempts, 1 to 1,000.
	MaxAttempts int `json:"max_attempts,omitempty"`
	// MaxDuration is the time limit of an attempt.
	MaxDuration time.Duration `json:"-"`
	// MaxTotalDuration is the time limit of all attempts together.
	MaxTotalDuration time.Duration `json:"-"`
	// NoProgressTimeout fails an attempt that reports nothing for this long.
	NoProgressTimeout time.Duration `json:"-"`
}

// The fields whose form in JSON is not that of Go.
type newTask struct {
	Submission
	Text              *string `json:"payload,omitempty"`
	Bytes             []byte  `json:"payload_base64,omitempty"`
	Delay             length  `json:"delay,omitempty"`
	ScheduledAt       int64   `json:"scheduled_at,omitempty"`
	ExpiresAt         int64   `json:"expires_at,omitempty"`
	MaxDuration       length  `json:"max_duration,omitempty"`
	MaxTotalDuration  length  `json:"max_total_duration,omitempty"`
	NoProgressTimeout length  `json:"no_progress_timeout,omitempty"`
}

// Task is a task as a gateway shows it.
type Task struct {
	// ID is the id of the task in its queue.
	ID string `json:"id"`
	// Status is scheduled, ready, waiting, claimed, running, retrying, completed, failed, cancelled,
	// expired or ended.
	Status string `json:"status"`
	// Attempts includes the running attempt.
	Attempts int `json:"attempts"`
	// Epoch grows with each lease.
	Epoch int `json:"epoch"`
	// Reason is why the last attempt failed, or why the task ended. Cause is the same for programs,
	// such as error, no_progress, lost or cancelled.
	Reason string `json:"reason"`
	Cause  string `json:"cause"`
	// Type, Key and Tags are those of the submission.
	Type string   `json:"type"`
	Key  string   `json:"key"`
	Tags []string `json:"tags"`
	// Progress is the last reported progress; nil if there is none.
	Progress *Progress `json:"progress"`
	// CancelRequested is set after somebody cancelled the task.
	CancelRequested bool `json:"cancel_requested"`
}

// Progress is how far a task is, in units of its own.
type Progress struct {
	Done    int64  `json:"done"`
	Total   int64  `json:"total,omitempty"`
	Message string `json:"message,omitempty"`
}

// Submit stores a task and returns its id. A submit with an idempotency key is repeated until its
// outcome is known, for the client's patience. Without one (with a DedupeKey), a submit without an
// answer fails with [ErrOutcomeUnknown].
func (c *Client) Submit(ctx context.Context, queue string, submission Submission) (string, error) {
	if submission.IdempotencyKey == "" && submission.DedupeKey == "" {
		submission.IdempotencyKey = rand.Text()
	}
	body := newTask{
		Submission:        submission,
		Delay:             length(submission.Delay),
		ScheduledAt:       instant(submission.ScheduledAt),
		ExpiresAt:         instant(submission.ExpiresAt),
		MaxDuration:       length(submission.MaxDuration),
		MaxTotalDuration:  length(submission.MaxTotalDuration),
		NoProgressTimeout: length(submission.NoProgressTimeout),
	}
	body.Text, body.Bytes = textOrBytes(submission.Payload)
	var submitted Task
	wanted := request{method: "POST", path: path(queue, "tasks"), body: body, repeatable: submission.IdempotencyKey != "", expects: []string{"id"}}
	err := c.ask(ctx, wanted, &submitted)
	return submitted.ID, err
}

// Get returns the state of a task.
func (c *Client) Get(ctx context.Context, queue, id string) (*Task, error) {
	task := &Task{}
	if err := c.ask(ctx, request{method: "GET", path: path(queue, "tasks", id), repeatable: true, expects: []string{"id"}}, task); err != nil {
		return nil, err
	}
	return task, nil
}

// Wait waits until a task ends, however it ends, or until the context does.
func (c *Client) Wait(ctx context.Context, queue, id string) (*Task, error) {
	wanted := request{method: "GET", repeatable: true, timeout: waitTime + 15*time.Second, expects: []string{"id"}, mayBeEmpty: true}
	wanted.path = fmt.Sprintf("%s/wait?timeout=%dms", path(queue, "tasks", id), waitTime.Milliseconds())
	task := &Task{}
	for task.ID == "" {
		// An answer without a body: the task has not ended.
		if err := c.ask(ctx, wanted, task); err != nil {
			return nil, err
		}
	}
	return task, nil
}

// Result waits until a task ends, and returns its result. If it has none, the error is
// [ErrTaskFailed] and a [*TaskError], which has the task.
func (c *Client) Result(ctx context.Context, queue, id string) ([]byte, error) {
	task, err := c.Wait(ctx, queue, id)
	if err != nil {
		return nil, err
	}
	if task.Status != "completed" {
		return nil, &TaskError{task}
	}
	var result []byte
	err = c.ask(ctx, request{method: "GET", path: path(queue, "tasks", id, "result"), repeatable: true}, &result)
	if refused := (*GatewayError)(nil); errors.As(err, &refused) && refused.isGone() {
		return nil, fmt.Errorf("%w: %w", &TaskError{task}, err)
	}
	return result, err
}

// Cancel requests the end of a task. A task that does not run ends at once, a running task when its
// worker has learned of it.
func (c *Client) Cancel(ctx context.Context, queue, id, reason string) error {
	body := map[string]string{"reason": reason}
	return c.ask(ctx, request{method: "POST", path: path(queue, "tasks", id+":cancel"), body: body, repeatable: true}, nil)
}

// ask sends a request with the limits of the client.
func (c *Client) ask(ctx context.Context, wanted request, answer any) error {
	wanted.timeout, wanted.patience = cmp.Or(wanted.timeout, 30*time.Second), c.patience
	return c.gateways.do(ctx, wanted, answer)
}

func path(queue string, parts ...string) string {
	joined := "/v1/queues/" + url.PathEscape(queue)
	for _, part := range parts {
		joined += "/" + url.PathEscape(part)
	}
	return joined
}

// length is a duration as gateways read it.
type length time.Duration

func (l length) MarshalText() ([]byte, error) {
	return fmt.Appendf(nil, "%dms", time.Duration(l).Milliseconds()), nil
}

// instant is a time in ms since the epoch; 0 for the zero time.
func instant(at time.Time) int64 {
	if at.IsZero() {
		return 0
	}
	return at.UnixMilli()
}

// textOrBytes returns data as text if it is UTF-8, and otherwise as bytes, which JSON has in base64.
// Long text that JSON makes much longer is bytes, too: a control character takes 6, and a body has a
// limit.
func textOrBytes(data []byte) (*string, []byte) {
	text := string(data)
	if !utf8.ValidString(text) {
		return nil, data
	}
	if len(data) > shortText {
		if content, err := encoded(text); err == nil && len(content) > 2*len(data) {
			return nil, data
		}
	}
	return &text, nil
}

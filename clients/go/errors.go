package longhaul

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

var (
	// ErrUnreachable means that no gateway got the request, so it had no effect.
	ErrUnreachable = errors.New("no gateway is reachable")
	// ErrOutcomeUnknown means that the request may have taken effect. Read the state before you repeat it.
	ErrOutcomeUnknown = errors.New("the outcome is unknown")
	// ErrTaskFailed means that the task ended without a result.
	ErrTaskFailed = errors.New("the task has no result")

	// ErrCancelled is the cause of a processor's context after somebody cancelled the task.
	ErrCancelled = errors.New("the task was cancelled")
	// ErrLeaseLost is the cause of a processor's context when the gateway refused a report, or when
	// no keep-alive succeeded within the lease time. Another worker may run the task.
	ErrLeaseLost = errors.New("the lease is lost")
	// ErrDraining is the cause of a processor's context when the worker ends. The task is given
	// back, which costs no attempt.
	ErrDraining = errors.New("the worker ends")
)

// GatewayError is a gateway's refusal of a request. Use [errors.As] to get it.
type GatewayError struct {
	// Status is the HTTP status.
	Status int `json:"-"`
	// Code is stable. An answer without a code, such as a proxy's, has "http_" and the status.
	Code string `json:"code"`
	// Detail says what happened and what to do.
	Detail string `json:"detail"`
	// RetryAfter is the pause that the gateway asked for.
	RetryAfter time.Duration `json:"-"`
}

// Error has the status, the code and the detail.
func (e *GatewayError) Error() string {
	return fmt.Sprintf("%d %s: %s", e.Status, e.Code, e.Detail)
}

// TaskError is the [ErrTaskFailed] of a task that ended without a result. Use [errors.As] to get it.
type TaskError struct {
	// Task has the status, the reason and the cause.
	Task *Task
}

// Error has the id, the status and the reason.
func (e *TaskError) Error() string {
	return fmt.Sprintf("%v: task %s is %s: %s", ErrTaskFailed, e.Task.ID, e.Task.Status, cmp.Or(e.Task.Reason, "no reason was given"))
}

// Unwrap returns [ErrTaskFailed].
func (e *TaskError) Unwrap() error { return ErrTaskFailed }

func refusal(status int, header http.Header, body []byte) *GatewayError {
	refused := &GatewayError{}
	// Only a gateway's own code tells anything: a proxy's answer is as none.
	kind, _, _ := mime.ParseMediaType(header.Get("Content-Type"))
	if kind != "application/problem+json" || json.Unmarshal(body, refused) != nil || refused.Code == "" {
		detail := strings.ToValidUTF8(string(body[:min(len(body), 200)]), "?")
		refused = &GatewayError{Code: "http_" + strconv.Itoa(status), Detail: detail}
	}
	refused.Status = status
	seconds, err := strconv.ParseFloat(header.Get("Retry-After"), 64)
	if err == nil && seconds > 0 && !math.IsInf(seconds, 1) {
		// The limit also keeps a large number from overflowing.
		refused.RetryAfter = min(time.Duration(min(seconds, 3600)*float64(time.Second)), retryAfterMax)
	}
	return refused
}

// Whether another gateway, or the same one later, may serve the request.
func (e *GatewayError) isUnavailable() bool {
	return slices.Contains([]int{408, 421, 429}, e.Status) || e.Status >= 500 || e.isOfProxy()
}

func (e *GatewayError) isOfProxy() bool { return strings.HasPrefix(e.Code, "http_") }

// Only a gateway's code says that the request had no effect.
func (e *GatewayError) mayBeDone() bool {
	return e.Code == "outcome_unknown" || e.Code == "timed_out" || e.isOfProxy()
}

// Whether a report was refused because the lease or the task is over.
func (e *GatewayError) isLeaseOver() bool {
	codes := []string{"stale_lease_id", "not_current_lease_owner", "lease_expired", "task_ended", "task_not_found", "queue_not_found"}
	return slices.Contains(codes, e.Code)
}

// Whether there is no such queue, task or result. A proxy's 404 does not say so.
func (e *GatewayError) isGone() bool {
	return (e.Status == http.StatusNotFound || e.Status == http.StatusGone) && !e.isOfProxy()
}

// Whether the same report would be refused again.
func (e *GatewayError) isInvalid() bool {
	return slices.Contains([]int{400, 413, 415, 422}, e.Status) && !e.isOfProxy()
}

// Whether a report is settled. A 401 or 403 may end: a token was just rotated.
func (e *GatewayError) isVerdict() bool { return e.isInvalid() || e.isLeaseOver() }

// ending is a processor's error with instructions for the report.
type ending struct {
	error
	report report
}

func (e *ending) Unwrap() error { return e.error }

// Fatal returns an error that fails the task for good: no further attempt follows.
func Fatal(err error) error {
	return &ending{err, report{Status: failed, Fatal: true}}
}

// RetryAfter returns an error that fails the attempt. The next attempt begins after the pause,
// instead of the queue's backoff. A pause below zero is none.
func RetryAfter(pause time.Duration, err error) error {
	after := length(max(pause, 0))
	return &ending{err, report{Status: failed, RetryAfter: &after}}
}

// GiveBack returns an error that gives the task back, which costs no attempt. No worker gets the
// task before the pause is over.
func GiveBack(pause time.Duration) error {
	after := length(max(pause, 0))
	return &ending{errors.New("given back"), report{Status: released, After: &after}}
}

package longhaul

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log"
	"math"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// The most tasks that a gateway leases to one request.
	leasesMax = 100
	// What a gateway accepts.
	leaseTimeMin = 100 * time.Millisecond
	leaseTimeMax = 7 * 24 * time.Hour
	pollMax      = 30 * time.Second

	// How long a processor may take to return after its context ended in a drain. Then its task is
	// given back although it runs.
	grace = 5 * time.Second

	// Outcomes of a confirmation. An unknown one must be repeated.
	resultOK       = "RESULT_OK"
	unknownOutcome = "UNKNOWN"
)

// Processor works on a task. It returns the result, or an error, which fails the attempt; see
// [Fatal], [RetryAfter] and [GiveBack]. A panic fails the attempt, too, and so does [runtime.Goexit].
//
// The context ends when the task was cancelled or lost, or is to be given back: [context.Cause] is
// [ErrCancelled], [ErrLeaseLost] or [ErrDraining]. An error that the processor then returns is not
// reported as a failure.
type Processor func(ctx context.Context, lease *Lease) ([]byte, error)

// Worker leases tasks of a queue and calls Process with each. Only the first three fields are
// required.
type Worker struct {
	Client  *Client
	Queue   string
	Process Processor
	// Concurrency is the most tasks at once (4 by default).
	Concurrency int
	// Name is shown as the worker of a task (host and process id by default).
	Name string
	// Types limits the worker to tasks of these types.
	Types []string
	// LeaseTime is the silence after which another worker may have a task (30 s by default; 100 ms to
	// 7 days). The worker sends keep-alives three times in that time, and at least every 5 s.
	LeaseTime time.Duration
	// Drain is how long running tasks may take after the end of the worker's context (10 s by
	// default; none if it is negative; [math.MaxInt64] for no limit). Then they are given back with
	// their checkpoints.
	Drain time.Duration
	// Poll is how long a request waits for a task (5 s by default, 30 s at most). The worker may end
	// this much later, because a cancelled request could lose a task.
	Poll time.Duration
	// Logf gets a line for each event of a task ([log.Printf] by default).
	Logf func(format string, args ...any)
}

// Run works until the context ends or the worker is told to drain (`longhaul worker drain`). It
// returns when the last task has ended or is given back. It panics if a required field is missing, or
// if Concurrency, LeaseTime or Poll is out of range.
func (w Worker) Run(ctx context.Context) {
	host, _ := os.Hostname()
	w.Name = cmp.Or(w.Name, fmt.Sprintf("%s-%d", host, os.Getpid()))
	w.Concurrency = cmp.Or(w.Concurrency, 4)
	w.LeaseTime = cmp.Or(w.LeaseTime, 30*time.Second)
	w.Drain = cmp.Or(w.Drain, 10*time.Second)
	w.Poll = cmp.Or(w.Poll, 5*time.Second)
	w.check()
	if w.Logf == nil {
		w.Logf = log.Printf
	}
	w.Logf("ready")
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	// Tells this start of the worker apart from others with its name.
	instance := rand.Text()
	tasks, halt := context.WithCancelCause(context.WithoutCancel(ctx))
	abandoned, abandon := context.WithCancel(context.Background())
	context.AfterFunc(ctx, func() {
		drain := max(w.Drain, 0)
		time.AfterFunc(drain, func() {
			halt(ErrDraining)
			time.AfterFunc(grace, abandon)
		})
	})
	var running sync.WaitGroup
	slots := make(chan struct{}, w.Concurrency)
	for pause := 500 * time.Millisecond; ctx.Err() == nil; {
		// Waits for a slot; each task then takes its own.
		select {
		case <-ctx.Done():
			continue
		case slots <- struct{}{}:
			<-slots
		}
		granted, err := w.lease(ctx, instance, min(cap(slots)-len(slots), leasesMax))
		var refused *GatewayError
		if errors.As(err, &refused) && refused.Code == "worker_drained" {
			w.Logf("told to drain")
			stop()
			break
		}
		if err != nil {
			w.Logf("no lease: %v", err)
			_ = sleep(ctx, jittered(pause))
			pause = min(2*pause, 10*time.Second)
			continue
		}
		pause = 500 * time.Millisecond
		since := time.Now()
		outcomes := w.confirm(ctx, granted)
		for i := range granted.Leases {
			if outcomes[i] != resultOK {
				w.Logf("lost %s before it began: %s", granted.Leases[i].TaskID, outcomes[i])
				continue
			}
			slots <- struct{}{}
			running.Go(func() {
				defer func() { <-slots }()
				w.work(ctx, tasks, abandoned, &granted.Leases[i], left(granted.Leases[i].ExpiresAt, granted.Now), since)
			})
		}
	}
	running.Wait()
	w.Logf("drained")
}

// check panics with the name of a field that is missing or out of range.
func (w Worker) check() {
	switch {
	case w.Client == nil:
		panic("longhaul: Worker.Client is nil")
	case w.Queue == "":
		panic("longhaul: Worker.Queue is empty")
	case w.Process == nil:
		panic("longhaul: Worker.Process is nil")
	case w.Concurrency < 1:
		panic(fmt.Sprintf("longhaul: Worker.Concurrency is %d: set at least 1", w.Concurrency))
	case w.LeaseTime < leaseTimeMin || w.LeaseTime > leaseTimeMax:
		panic(fmt.Sprintf("longhaul: Worker.LeaseTime is %v: set %v to %v", w.LeaseTime, leaseTimeMin, leaseTimeMax))
	case w.Poll < 0 || w.Poll > pollMax:
		panic(fmt.Sprintf("longhaul: Worker.Poll is %v: set 0s to %v", w.Poll, pollMax))
	}
}

// A task as the gateway leases it.
type leased struct {
	Lease
	ID        string  `json:"lease"`
	Text      *string `json:"payload"`
	Bytes     []byte  `json:"payload_base64"`
	ExpiresAt int64   `json:"expires_at"`
}

// The leases of one answer, and the gateway's clock.
type leases struct {
	Leases []leased `json:"leases"`
	Now    int64    `json:"now"`
}

func (w Worker) lease(ctx context.Context, instance string, count int) (granted leases, err error) {
	body := map[string]any{"worker": w.Name, "instance": instance, "confirms": true, "count": count, "wait": length(w.Poll), "lease_time": length(w.LeaseTime)}
	if len(w.Types) > 0 {
		body["types"] = w.Types
	}
	// Leases that are not confirmed are given back, so the request is repeatable.
	wanted := request{method: "POST", path: path(w.Queue, "leases"), body: body, repeatable: true, unbroken: true}
	wanted.timeout, wanted.patience = w.Poll+10*time.Second, 5*time.Second
	wanted.expects, wanted.mayBeEmpty = []string{"leases", "now"}, true
	err = w.Client.gateways.do(ctx, wanted, &granted)
	return granted, err
}

// confirm tells the gateway that the leases have come, and returns the outcome of each. It repeats this
// until all are known, while the leases last. A worker that ends gives back what is not known. So that
// counts as confirmed, and does not begin.
func (w Worker) confirm(ctx context.Context, granted leases) []string {
	outcomes := make([]string, len(granted.Leases))
	body := struct {
		Leases []string `json:"leases"`
	}{}
	lasting := time.Duration(math.MaxInt64)
	for i := range granted.Leases {
		lease := &granted.Leases[i]
		body.Leases = append(body.Leases, lease.ID)
		lasting = min(lasting, left(lease.ExpiresAt, granted.Now))
		outcomes[i] = unknownOutcome
	}
	wanted := request{method: "POST", path: path(w.Queue, "leases:confirm"), body: body, repeatable: true, unbroken: true}
	wanted.timeout, wanted.expects, wanted.lasts = reportTimeout, []string{"outcomes"}, lasting
	giveUp := time.Now().Add(lasting)
	for pause := time.Duration(0); slices.Contains(outcomes, unknownOutcome) && sleep(ctx, pause) == nil && time.Now().Before(giveUp); {
		wanted.patience, wanted.pauses = time.Until(giveUp), map[*gateway]time.Time{}
		var answer struct{ Outcomes []struct{ Outcome string } }
		if err := w.Client.gateways.do(ctx, wanted, &answer); err != nil {
			w.Logf("leases are not confirmed: %v", err)
			break
		}
		for i := range outcomes {
			outcomes[i] = unknownOutcome
			if i < len(answer.Outcomes) {
				outcomes[i] = answer.Outcomes[i].Outcome
			}
		}
		pause = min(max(2*pause, pauseMin), time.Second)
	}
	for i := range outcomes {
		if outcomes[i] == unknownOutcome && ctx.Err() != nil {
			outcomes[i] = resultOK
		}
	}
	return outcomes
}

// Runs a task and reports its end. An abandoned task is given back although its processor runs.
func (w Worker) work(stop, tasks, abandoned context.Context, granted *leased, rest time.Duration, since time.Time) {
	ctx, halt := context.WithCancelCause(tasks)
	defer halt(nil)
	lease := &granted.Lease
	lease.id, lease.path, lease.gateways, lease.logf = granted.ID, path(w.Queue, "leases:report"), w.Client.gateways, w.Logf
	if lease.Payload = granted.Bytes; granted.Text != nil {
		lease.Payload = []byte(*granted.Text)
	}
	lease.keep(rest, since, halt)
	w.Logf("leased %s attempt %d", lease.TaskID, lease.Attempt)
	ending := report{Status: released}
	// A worker that drains begins nothing.
	if stop.Err() == nil {
		outcome := make(chan report, 1)
		go func() {
			var result []byte
			err := errors.New("the processor called runtime.Goexit")
			defer func() { outcome <- w.outcome(ctx, lease, result, err) }()
			result, err = w.call(ctx, lease)
		}()
		select {
		case ending = <-outcome:
		case <-abandoned.Done():
			w.Logf("%s is given back although its processor runs", lease.TaskID)
		}
	}
	err := lease.end(ending)
	word := strings.ToLower(ending.Status)
	switch {
	case ending.Status == failed && errors.Is(context.Cause(ctx), ErrCancelled):
		w.Logf("cancelled %s", lease.TaskID)
	case lease.lost != "":
		w.Logf("lost %s: %s", lease.TaskID, lease.lost)
	case err != nil:
		w.Logf("not %s %s: %v", word, lease.TaskID, err)
	default:
		w.Logf("%s %s", word, lease.TaskID)
	}
}

// Returns what to report after the processor ended with this result or error.
func (w Worker) outcome(ctx context.Context, lease *Lease, result []byte, err error) report {
	halted := context.Cause(ctx)
	if err == nil {
		done := report{Status: succeeded}
		done.Result, done.Bytes = textOrBytes(result)
		return done
	}
	if halted == nil || !errors.Is(err, context.Canceled) && !errors.Is(err, halted) {
		w.Logf("attempt %d of %s failed: %v", lease.Attempt, lease.TaskID, err)
	}
	var ended *ending
	switch {
	case errors.Is(halted, ErrCancelled):
		return report{Status: failed, Reason: "cancelled"}
	case halted != nil:
		// Also after a lost lease: the gateway decides whether it is over.
		return report{Status: released}
	case errors.As(err, &ended):
		done := ended.report
		if done.Status == failed {
			done.Reason = reason(err)
		}
		return done
	default:
		return report{Status: failed, Reason: reason(err)}
	}
}

// reason is the text of an error, also of one whose method panics.
func reason(err error) string { return mend(fmt.Sprint(err), reasonBytes) }

// Turns a panic into an error.
func (w Worker) call(ctx context.Context, lease *Lease) (result []byte, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			err = fmt.Errorf("panic: %v", cause)
			w.Logf("the processor of %s panicked: %v\n%s", lease.TaskID, cause, debug.Stack())
		}
	}()
	return w.Process(ctx, lease)
}

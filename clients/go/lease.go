package longhaul

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

const (
	// The shortest time between two reports with news.
	newsEvery = time.Second
	// Keep-alives are at least this frequent, because their answers tell a cancel.
	keepAliveEvery = 5 * time.Second
	reportTimeout  = 10 * time.Second
	// How long the end of a task is reported while no gateway takes it.
	reportPatience = time.Minute

	checkpointBytes = 64 << 10
	logLines        = 100
	lineBytes       = 256
	messageBytes    = 64 << 10
	reasonBytes     = 16 << 10

	inProgress = "IN_PROGRESS"
	succeeded  = "SUCCEEDED"
	failed     = "FAILED"
	released   = "RELEASED"
)

// Lease is a task that the worker holds. Its methods may be called by any goroutine.
type Lease struct {
	// TaskID with Epoch is a fencing token for what the processor writes elsewhere: the epoch grows
	// with each lease of the task.
	TaskID string `json:"task"`
	Epoch  int    `json:"epoch"`
	// Attempt is the number of the attempt, from 1.
	Attempt     int `json:"attempt"`
	MaxAttempts int `json:"max_attempts"`
	// Type and Properties are those of the submission.
	Type       string            `json:"type"`
	Properties map[string]string `json:"properties"`
	// Payload is what was submitted, byte for byte.
	Payload []byte `json:"-"`
	// Checkpoint is what an earlier attempt saved; nil if there is none.
	Checkpoint []byte `json:"checkpoint_base64"`

	gateways *gateways
	path, id string
	logf     func(string, ...any)
	// Cancels the context of the processor.
	halt context.CancelCauseFunc
	// Ends the keep-alives, and their pauses: the end of the task waits for none of them.
	over   context.Context
	finish context.CancelFunc
	// Closed when the keep-alives have ended.
	ended chan struct{}
	// Has one element if there is news.
	fresh chan struct{}
	// The time that the lease lasts after a successful report. The goroutine of the keep-alives has
	// this and the next fields until it ends.
	left time.Duration
	// Halts the processor when no keep-alive succeeds.
	expiry *time.Timer
	// Why the gateway refused a report, if it did.
	lost string
	// The pauses that gateways asked for after keep-alives of this task.
	pauses map[*gateway]time.Time

	mutex sync.Mutex
	// What the next report has.
	news report
	// Whether a cut line was warned about.
	isWarned bool
}

type report struct {
	Lease      string    `json:"lease"`
	Status     string    `json:"status"`
	Result     *string   `json:"result,omitempty"`
	Bytes      []byte    `json:"result_base64,omitempty"`
	Reason     string    `json:"reason,omitempty"`
	Fatal      bool      `json:"fatal,omitempty"`
	RetryAfter *length   `json:"retry_after,omitempty"`
	After      *length   `json:"after,omitempty"`
	Progress   *Progress `json:"progress,omitempty"`
	Checkpoint []byte    `json:"checkpoint_base64,omitzero"`
	Log        []string  `json:"log,omitempty"`
}

// SetProgress reports how far the task is, within about a second. Newer progress replaces it. A
// negative number is 0.
func (l *Lease) SetProgress(done, total int64, message string) {
	l.tell(func(news *report) {
		news.Progress = &Progress{max(done, 0), max(total, 0), mend(message, messageBytes)}
	})
}

// SaveCheckpoint stores up to 64 KiB for the next attempt, within about a second. A newer
// checkpoint replaces it.
func (l *Lease) SaveCheckpoint(data []byte) error {
	if len(data) > checkpointBytes {
		return fmt.Errorf("a checkpoint has at most %d bytes, and this one has %d", checkpointBytes, len(data))
	}
	kept := append([]byte{}, data...)
	l.tell(func(news *report) { news.Checkpoint = kept })
	return nil
}

// Log reports a line for people who watch the task, cut at 256 bytes. Of more than 100 lines in a
// second, the last are sent.
func (l *Lease) Log(line string) {
	mended := mend(line, lineBytes)
	l.tell(func(news *report) {
		news.Log = lastLines(append(news.Log, mended))
		if mended != line && !l.isWarned {
			l.isWarned = true
			l.logf("log of %s: a line is sent as %q", l.TaskID, mended)
		}
	})
}

func (l *Lease) tell(change func(news *report)) {
	l.mutex.Lock()
	change(&l.news)
	l.mutex.Unlock()
	select {
	case l.fresh <- struct{}{}:
	default:
	}
}

func (l *Lease) takeNews() report {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	news := l.news
	l.news = report{}
	return news
}

// Keeps news that were not sent, unless there are newer ones.
func (l *Lease) putBack(old report) {
	l.tell(func(news *report) {
		news.Log = lastLines(slices.Concat(old.Log, news.Log))
		if news.Progress == nil {
			news.Progress = old.Progress
		}
		if news.Checkpoint == nil {
			news.Checkpoint = old.Checkpoint
		}
	})
}

func lastLines(lines []string) []string { return lines[max(len(lines)-logLines, 0):] }

// Starts the keep-alives.
func (l *Lease) keep(left time.Duration, since time.Time, halt context.CancelCauseFunc) {
	l.left, l.halt, l.pauses = left, halt, map[*gateway]time.Time{}
	l.over, l.finish = context.WithCancel(context.Background())
	l.ended, l.fresh = make(chan struct{}), make(chan struct{}, 1)
	// A timer of its own, since a keep-alive may wait for its answer.
	l.expiry = time.AfterFunc(left-time.Since(since), func() {
		halt(fmt.Errorf("%w: no keep-alive succeeded for %v", ErrLeaseLost, left))
	})
	go l.keepAlive()
}

// Three times per lease, so that one answer may be late or missing.
func (l *Lease) pause() time.Duration { return min(l.left/3, keepAliveEvery) }

func (l *Lease) keepAlive() {
	defer close(l.ended)
	defer l.expiry.Stop()
	for l.lost == "" {
		pause := min(newsEvery, l.pause())
		select {
		case <-l.over.Done():
			return
		case <-l.fresh:
		case <-time.After(l.pause() - pause):
		}
		l.sendNews(l.takeNews())
		select {
		case <-l.over.Done():
			return
		case <-time.After(pause):
		}
	}
}

func (l *Lease) sendNews(news report) {
	for _, part := range everLess(news) {
		begun := time.Now()
		part.Status = inProgress
		answer, err := l.report(l.over, part, max(min(reportTimeout, l.left/3), 500*time.Millisecond), l.pause()/2, l.pauses)
		var refused *GatewayError
		isRefused := errors.As(err, &refused)
		switch {
		case err == nil:
			if answer.ExpiresAt > 0 {
				l.left = left(answer.ExpiresAt, answer.Now)
			}
			l.expiry.Reset(l.left - time.Since(begun))
			if answer.Cancelled {
				l.halt(ErrCancelled)
			}
			if stored := answer.CheckpointStored; stored != nil && !*stored {
				l.putBack(report{Checkpoint: part.Checkpoint})
			}
			return
		case isRefused && refused.isLeaseOver():
			l.lose(refused)
			return
		case isRefused && refused.isInvalid() && part.hasNews():
			// The gateway would refuse these news again, but the lease must go on.
			l.logf("news of %s are refused: %v", l.TaskID, err)
		default:
			if l.over.Err() == nil {
				l.logf("keep-alive of %s: %v", l.TaskID, err)
			}
			l.putBack(part)
			return
		}
	}
}

func (r *report) hasNews() bool { return r.Progress != nil || r.Checkpoint != nil || r.Log != nil }

// What to send of the news, each part after the one before it was refused: all, the checkpoint alone,
// nothing.
func everLess(news report) []report {
	parts := []report{news}
	if news.Checkpoint != nil && (news.Progress != nil || news.Log != nil) {
		parts = append(parts, report{Checkpoint: news.Checkpoint})
	}
	if news.hasNews() {
		parts = append(parts, report{})
	}
	return parts
}

type reported struct {
	Cancelled        bool  `json:"cancelled"`
	CheckpointStored *bool `json:"checkpoint_stored"`
	ExpiresAt        int64 `json:"expires_at"`
	Now              int64 `json:"now"`
	// News that the gateway has mended or left out.
	Warnings []string `json:"warnings"`
}

// Reports are repeatable: the gateway recognizes a repeated report of a lease. They do not depend on
// the context of the worker, since a worker that drains still reports. The end of ctx ends the pauses,
// but no attempt.
func (l *Lease) report(ctx context.Context, content report, timeout, patience time.Duration, pauses map[*gateway]time.Time) (answer reported, err error) {
	content.Lease = l.id
	wanted := request{method: "POST", path: l.path, body: content, timeout: timeout, patience: patience, repeatable: true, unbroken: true}
	wanted.expects, wanted.pauses, wanted.lasts = []string{"cancelled", "now"}, pauses, l.left
	err = l.gateways.do(ctx, wanted, &answer)
	for _, warning := range answer.Warnings {
		l.logf("news of %s: %s", l.TaskID, warning)
	}
	return answer, err
}

func (l *Lease) lose(refused *GatewayError) {
	l.lost = refused.Code
	l.halt(fmt.Errorf("%w: %w", ErrLeaseLost, refused))
}

// Ends the keep-alives and reports the end of the task. The error says why the report does not count.
func (l *Lease) end(content report) error {
	l.finish()
	<-l.ended
	if l.lost != "" {
		return errors.New(l.lost)
	}
	news := l.takeNews()
	if content.Status == succeeded {
		// No attempt follows that could continue from the checkpoint.
		news.Checkpoint = nil
	}
	var refused *GatewayError
	for _, part := range everLess(news) {
		content.Progress, content.Log, content.Checkpoint = part.Progress, part.Log, part.Checkpoint
		_, err := l.report(context.Background(), content, reportTimeout, max(reportPatience, l.left), map[*gateway]time.Time{})
		if err == nil || !errors.As(err, &refused) {
			return err
		}
		if refused.isLeaseOver() {
			l.lose(refused)
		}
		if !refused.isInvalid() {
			return refused
		}
		l.logf("the end of %s is refused: %v", l.TaskID, err)
	}
	if content.Status != released {
		// Such as a result that is too large: another attempt would end alike.
		content = report{Status: failed, Fatal: true, Reason: mend(refused.Code+": "+refused.Detail, reasonBytes)}
		if _, err := l.report(context.Background(), content, reportTimeout, max(reportPatience, l.left), map[*gateway]time.Time{}); err != nil {
			l.logf("the end of %s is not reported: %v", l.TaskID, err)
		}
	}
	return refused
}

// mend returns text that a report can carry: bytes that are no UTF-8 are replaced, and the end is cut.
func mend(text string, limit int) string {
	// A character has at most 4 bytes.
	text = strings.ToValidUTF8(text[:min(len(text), limit+4)], "\uFFFD")
	if len(text) <= limit {
		return text
	}
	for !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit]
}

// left is the rest of a lease, by the gateway's clock alone: ours may differ.
func left(expiresAt, now int64) time.Duration {
	return max(time.Duration(expiresAt-now)*time.Millisecond, 100*time.Millisecond)
}

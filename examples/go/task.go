package main

import (
	"context"
	"sync"
	"time"
)

// newsEvery is how often news of a task are sent at most.
const newsEvery = time.Second

// Task is a leased task whose lease is kept alive.
type Task struct {
	Lease
	gateway *Gateway
	left    time.Duration
	stop    context.CancelFunc
	stopped chan struct{}
	// Has a place for one: there is something to tell.
	fresh chan struct{}

	mutex sync.Mutex
	// What the next keep-alive says.
	news Report
}

// keep keeps a lease alive in the background. When the task is lost, lose is told why.
func keep(gateway *Gateway, lease Lease, left time.Duration, lose context.CancelCauseFunc) *Task {
	ctx, stop := context.WithCancel(context.Background())
	task := &Task{Lease: lease, gateway: gateway, left: left, stop: stop, stopped: make(chan struct{}), fresh: make(chan struct{}, 1)}
	go func() {
		defer close(task.stopped)
		for {
			pause := min(newsEvery, task.left/3)
			select {
			case <-ctx.Done():
				return
			// When there is news, and otherwise three times per lease, so that one answer may be late or missing.
			case <-task.fresh:
			case <-time.After(task.left/3 - pause):
			}
			task.keepAlive(lose)
			select {
			case <-ctx.Done():
				return
			case <-time.After(pause):
			}
		}
	}()
	return task
}

func (task *Task) keepAlive(lose context.CancelCauseFunc) {
	task.mutex.Lock()
	report := task.news
	task.news = Report{}
	task.mutex.Unlock()
	report.Lease, report.Status = task.Lease.Lease, "IN_PROGRESS"
	answer := task.gateway.report(report)
	switch answer.Status {
	case 200:
		task.left = answer.TimeLeft(answer.ExpiresAt)
		if answer.Cancelled {
			lose(errCancelled)
		}
	case 404, 409:
		lose(Lost(answer.Code))
	default:
		// What was not heard is said again, unless there is something newer.
		task.mutex.Lock()
		if task.news.Progress == nil {
			task.news = report
		}
		task.mutex.Unlock()
		task.wake()
	}
}

// wake has the news told.
func (task *Task) wake() {
	select {
	case task.fresh <- struct{}{}:
	default:
	}
}

// Progress tells how far the task has come, and keeps a checkpoint for the next attempt. Both are sent within a second or
// so, the newest alone.
func (task *Task) Progress(done, total int, message string, checkpoint []byte) {
	task.mutex.Lock()
	task.news = Report{Progress: &Progress{done, total, message}, Checkpoint: checkpoint}
	task.mutex.Unlock()
	task.wake()
}

// Stop ends the keep-alives.
func (task *Task) Stop() {
	task.stop()
	<-task.stopped
}

// End reports the end, and asks again where it is not known whether it counts: the gateway knows the lease's own report again.
func (task *Task) End(report Report) *Answer {
	task.Stop()
	if report.Status != "SUCCEEDED" {
		// The next attempt goes on from the last checkpoint.
		report.Progress, report.Checkpoint = task.news.Progress, task.news.Checkpoint
	}
	giveUp := time.Now().Add(task.left)
	for {
		answer := task.gateway.report(report)
		unknown := answer.Status == 0 || answer.Status == 429 || answer.Status == 503
		if !unknown || time.Now().After(giveUp) {
			return answer
		}
		time.Sleep(500 * time.Millisecond)
	}
}

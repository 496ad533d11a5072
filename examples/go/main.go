// A worker in Go, with nothing but the standard library: it leases tasks from a gateway of longhaul, keeps each lease alive while it works on the
// task, and reports how the task ended.
//
//	go run . -url http://127.0.0.1:7070 -name NAME -lease-time SECONDS QUEUE
//
// A token of the gateway is taken from LONGHAUL_TOKEN. Replace process by what your tasks are.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"
)

// order is what a task asks for.
type order struct {
	Pages          int     `json:"pages"`
	SecondsPerPage float64 `json:"seconds_per_page"`
	StuckAt        int     `json:"stuck_at"`
	Broken         string  `json:"broken"`
}

// process copies the pages of a book, and goes on where the last attempt was. It ends early when its context is done. Its error is a failed attempt.
func process(ctx context.Context, task *Task) ([]byte, error) {
	order := order{SecondsPerPage: 0.1}
	if err := json.Unmarshal(task.Payload(), &order); err != nil {
		return nil, Fatal{err}
	}
	if order.Broken != "" {
		return nil, Fatal{errors.New(order.Broken)}
	}
	first, _ := strconv.Atoi(string(task.Checkpoint))
	for page := first + 1; page <= order.Pages; page++ {
		if page == order.StuckAt && task.Attempt == 1 {
			return nil, fmt.Errorf("page %d is stuck", page)
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(time.Duration(order.SecondsPerPage * float64(time.Second))):
		}
		task.Progress(page, order.Pages, "copying", []byte(strconv.Itoa(page)))
	}
	return fmt.Appendf(nil, "%d pages", order.Pages), nil
}

// Fatal is the error of a task that has failed for good: another attempt would fail as well.
type Fatal struct{ error }

// Lost is why a task is not ours any more: nobody wants to hear of it from us.
type Lost string

func (lost Lost) Error() string { return string(lost) }

// errStopped says that this worker is to end.
var errStopped = errors.New("the worker is to end")

// errCancelled says that somebody has asked for the end of the task. It ends as cancelled, whatever we report, and sooner
// if we do.
var errCancelled = errors.New("cancelled")

// workOn runs one task, and says how it ended.
func workOn(stop context.Context, gateway *Gateway, lease Lease, left time.Duration) {
	ctx, lose := context.WithCancelCause(context.Background())
	defer lose(nil)
	defer context.AfterFunc(stop, func() { lose(errStopped) })()
	task := keep(gateway, lease, left, lose)
	fmt.Printf("leased %s attempt %d\n", task.ID, task.Attempt)
	result, err := process(ctx, task)
	report := Report{Lease: task.Lease.Lease, Status: "SUCCEEDED", Result: result}
	var lost Lost
	var fatal Fatal
	switch {
	case err == nil:
	case errors.As(err, &lost):
		task.Stop()
		fmt.Printf("lost %s: %s\n", task.ID, lost)
		return
	case errors.Is(err, errCancelled):
		report.Status, report.Reason = "FAILED", err.Error()
		task.End(report)
		fmt.Printf("cancelled %s\n", task.ID)
		return
	case errors.Is(err, errStopped):
		// It is given back, which costs it no attempt.
		report.Status = "RELEASED"
	default:
		report.Status, report.Reason, report.Fatal = "FAILED", err.Error(), errors.As(err, &fatal)
	}
	answer := task.End(report)
	told := map[string]string{"SUCCEEDED": "succeeded", "FAILED": "failed", "RELEASED": "released"}[report.Status]
	if answer.Status != 200 {
		told = "not " + told
	}
	fmt.Printf("%s %s %s\n", told, task.ID, answer.Code)
}

func main() {
	host, _ := os.Hostname()
	url := flag.String("url", "http://127.0.0.1:7070", "the gateway")
	name := flag.String("name", fmt.Sprintf("%s-%d", host, os.Getpid()), "what others see of this worker")
	leaseTime := flag.Float64("lease-time", 30, "seconds of silence after which a task is another worker's")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "name the queue: worker [OPTIONS] QUEUE")
		os.Exit(2)
	}
	stop, _ := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	gateway := &Gateway{queue: *url + "/v1/queues/" + flag.Arg(0)}
	fmt.Println("ready")
	for stop.Err() == nil {
		answer := gateway.lease(*name, *leaseTime)
		switch {
		case answer.Status == 200:
			for _, lease := range answer.Leases {
				workOn(stop, gateway, lease, answer.TimeLeft(lease.ExpiresAt))
			}
		case answer.Status != 204:
			fmt.Printf("no lease: %s: %s\n", answer.Code, answer.Detail)
			time.Sleep(time.Second)
		}
	}
}

// The worker that the conformance suite tests: the payload of a task says what to do.
//
//	go build -o worker ./conformance && cargo run -p conformance -- ./worker
//
// docs/leases.md of the project describes the steps.
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"math"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"example.org/longhaul/clients/go"
)

// step has one of its fields.
type step struct {
	Succeed       *string         `json:"succeed"`
	SucceedBase64 *[]byte         `json:"succeed_base64"`
	SucceedWith   string          `json:"succeed_with"`
	SucceedBytes  int             `json:"succeed_bytes"`
	Fail          *string         `json:"fail"`
	FailBytes     int             `json:"fail_bytes"`
	Fatal         bool            `json:"fatal"`
	RetryAfter    *float64        `json:"retry_after"`
	GiveBack      *float64        `json:"give_back"`
	Progress      json.RawMessage `json:"progress"`
	Checkpoint    *string         `json:"checkpoint"`
	Log           *string         `json:"log"`
	LogBytes      int             `json:"log_bytes"`
	Sleep         float64         `json:"sleep"`
	Block         float64         `json:"block"`
}

func process(ctx context.Context, lease *longhaul.Lease) ([]byte, error) {
	var script struct{ Attempts [][]json.RawMessage }
	if err := json.Unmarshal(lease.Payload, &script); err != nil || len(script.Attempts) == 0 {
		return nil, longhaul.Fatal(errors.New("the payload is no script"))
	}
	for _, raw := range script.Attempts[min(lease.Attempt, len(script.Attempts))-1] {
		var step step
		strict := json.NewDecoder(bytes.NewReader(raw))
		strict.DisallowUnknownFields()
		if err := strict.Decode(&step); err != nil {
			return nil, longhaul.Fatal(fmt.Errorf("the step %s: %w", raw, err))
		}
		switch {
		case step.Succeed != nil:
			return []byte(*step.Succeed), nil
		case step.SucceedBase64 != nil:
			return *step.SucceedBase64, nil
		case step.SucceedBytes > 0:
			return bytes.Repeat([]byte("x"), step.SucceedBytes), nil
		case step.SucceedWith == "payload":
			return lease.Payload, nil
		case step.SucceedWith == "checkpoint":
			if lease.Checkpoint != nil {
				return lease.Checkpoint, nil
			}
		case step.Fail != nil:
			return nil, failure(step)
		case step.GiveBack != nil:
			return nil, longhaul.GiveBack(seconds(*step.GiveBack))
		case step.Progress != nil:
			var done any
			var total int64
			var message string
			if err := json.Unmarshal(step.Progress, &[]any{&done, &total, &message}); err != nil {
				return nil, longhaul.Fatal(err)
			}
			known, err := strconv.ParseFloat(fmt.Sprint(done), 64)
			if err != nil {
				return nil, longhaul.Fatal(err)
			}
			lease.SetProgress(int64(known), total, message)
		case step.Checkpoint != nil:
			if err := lease.SaveCheckpoint([]byte(*step.Checkpoint)); err != nil {
				return nil, err
			}
		case step.Log != nil:
			lease.Log(*step.Log)
		case step.FailBytes > 0:
			return nil, errors.New(strings.Repeat("x", step.FailBytes))
		case step.LogBytes > 0:
			lease.Log(strings.Repeat("x", step.LogBytes))
		case step.Sleep > 0:
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-time.After(seconds(step.Sleep)):
			}
		default:
			time.Sleep(seconds(step.Block))
		}
	}
	return nil, nil
}

func failure(step step) error {
	reason := errors.New(*step.Fail)
	switch {
	case step.Fatal:
		return longhaul.Fatal(reason)
	case step.RetryAfter != nil:
		return longhaul.RetryAfter(seconds(*step.RetryAfter), reason)
	}
	return reason
}

func seconds(count float64) time.Duration {
	if math.IsInf(count, 1) {
		return math.MaxInt64
	}
	return time.Duration(count * float64(time.Second))
}

// number reads a variable that the conformance suite sets.
func number(name string) float64 {
	value, err := strconv.ParseFloat(os.Getenv(name), 64)
	if err != nil {
		log.Fatalf("%s: %v", name, err)
	}
	return value
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	client, err := longhaul.NewClient(longhaul.Config{})
	if err != nil {
		log.Fatal(err)
	}
	var workers sync.WaitGroup
	for _, queue := range strings.Split(os.Getenv("LONGHAUL_QUEUE"), ",") {
		workers.Go(func() {
			longhaul.Worker{
				Client:      client,
				Queue:       queue,
				Process:     process,
				Name:        os.Getenv("LONGHAUL_WORKER"),
				Concurrency: int(number("LONGHAUL_CONCURRENCY")),
				LeaseTime:   seconds(number("LONGHAUL_LEASE_TIME")),
				Drain:       cmp.Or(seconds(number("LONGHAUL_DRAIN")), -1),
			}.Run(ctx)
		})
	}
	workers.Wait()
}

// A worker in Go with the module in clients/go: it copies books, page by page, and continues where the last attempt ended.
//
//	go run . [-url http://127.0.0.1:7070] [-name NAME] [-lease-time SECONDS] QUEUE
//
// LONGHAUL_TOKEN has the token, if the gateway needs one. Replace process by your own work.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"example.org/longhaul/clients/go"
)

// order is the payload of a task.
type order struct {
	Pages          int     `json:"pages"`
	SecondsPerPage float64 `json:"seconds_per_page"`
	StuckAt        int     `json:"stuck_at"`
	Broken         string  `json:"broken"`
}

// process copies the pages of a book. It returns early when its context ends.
func process(ctx context.Context, lease *longhaul.Lease) ([]byte, error) {
	order := order{SecondsPerPage: 0.1}
	if err := json.Unmarshal(lease.Payload, &order); err != nil {
		return nil, longhaul.Fatal(err)
	}
	if order.Broken != "" {
		return nil, longhaul.Fatal(errors.New(order.Broken))
	}
	first, _ := strconv.Atoi(string(lease.Checkpoint))
	for page := first + 1; page <= order.Pages; page++ {
		if page == order.StuckAt && lease.Attempt == 1 {
			return nil, fmt.Errorf("page %d is stuck", page)
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(seconds(order.SecondsPerPage)):
		}
		lease.SetProgress(int64(page), int64(order.Pages), "copying")
		if err := lease.SaveCheckpoint([]byte(strconv.Itoa(page))); err != nil {
			return nil, err
		}
	}
	return fmt.Appendf(nil, "%d pages", order.Pages), nil
}

func seconds(count float64) time.Duration { return time.Duration(count * float64(time.Second)) }

func main() {
	url := flag.String("url", "http://127.0.0.1:7070", "the gateway")
	name := flag.String("name", "", "the name of this worker; host and process id by default")
	leaseTime := flag.Float64("lease-time", 30, "seconds of silence after which another worker may have a task")
	flag.Parse()
	if flag.NArg() != 1 {
		log.Fatal("name the queue: worker [OPTIONS] QUEUE")
	}
	client, err := longhaul.NewClient(longhaul.Config{Gateways: []string{*url}})
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second signal ends the process.
	context.AfterFunc(ctx, stop)
	longhaul.Worker{
		Client:      client,
		Queue:       flag.Arg(0),
		Process:     process,
		Concurrency: 1,
		Name:        *name,
		LeaseTime:   seconds(*leaseTime),
		// It gives its task back at once when it is to end.
		Drain: -1,
		Logf:  log.New(os.Stdout, "", 0).Printf,
	}.Run(ctx)
}

// Plays all steps against the broker of the arguments (service URL, admin URL, name of the run) and prints what each saw, after
// a line "# step". What differs from run to run, such as message ids and times, is not printed.
package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"

	"github.com/apache/pulsar-client-go/pulsar"
	pulsarlog "github.com/apache/pulsar-client-go/pulsar/log"
)

// Steps spend most of their time waiting.
const atOnce = 6

type step struct {
	name string
	play func(*stage)
}

func connect(url string) pulsar.Client {
	quiet := pulsarlog.NewLoggerWithSlog(slog.New(slog.NewTextHandler(io.Discard, nil)))
	return must(pulsar.NewClient(pulsar.ClientOptions{URL: url, Logger: quiet}))
}

func main() {
	client := connect(os.Args[1])
	defer client.Close()
	var steps []step
	for _, some := range [][]step{producing, consuming, acknowledging, reading, topics} {
		steps = append(steps, some...)
	}
	stages := make([]*stage, len(steps))
	slots := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for at, step := range steps {
		stages[at] = &stage{client: client, admin: os.Args[2], run: os.Args[3], name: step.name}
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			stages[at].perform(step.play)
		})
	}
	all.Wait()
	for _, stage := range stages {
		for _, line := range stage.lines {
			fmt.Println(line)
		}
	}
}

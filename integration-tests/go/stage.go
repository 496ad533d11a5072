package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

const (
	// How long anything that must come may take.
	patience = 20 * time.Second
	// How long nothing must come before it is believed that nothing more comes.
	quiet = 400 * time.Millisecond
)

// What a step plays with: clients, names of its own, the admin interface, and the lines that it prints.
type stage struct {
	client pulsar.Client
	admin  string
	run    string
	name   string
	lines  []string
}

// Plays a step. Why it could not be played to its end is one of the lines; the others go on.
func (s *stage) perform(play func(*stage)) {
	s.line("#", s.name)
	defer func() {
		if cause := recover(); cause != nil {
			s.line("!", strings.ReplaceAll(fmt.Sprint(cause), s.run, "RUN"))
		}
	}()
	play(s)
}

// Ends the step if something failed.
func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func (s *stage) line(parts ...any) {
	s.lines = append(s.lines, strings.TrimSuffix(fmt.Sprintln(parts...), "\n"))
}

func (s *stage) topic(topic string) string {
	name := strings.ReplaceAll(s.name, " ", "-")
	return fmt.Sprintf("persistent://public/default/clients-%s-go-%s-%s", s.run, name, topic)
}

// A producer of one message per entry.
func (s *stage) producer(topic string) pulsar.Producer {
	return must(s.client.CreateProducer(pulsar.ProducerOptions{Topic: topic, DisableBatching: true}))
}

// Options of a subscription from the first message on.
func options(topic string, kind pulsar.SubscriptionType) pulsar.ConsumerOptions {
	return pulsar.ConsumerOptions{
		Topic:                       topic,
		SubscriptionName:            "sub",
		Type:                        kind,
		SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest,
	}
}

func (s *stage) subscribe(options pulsar.ConsumerOptions) pulsar.Consumer {
	return must(s.client.Subscribe(options))
}

func (s *stage) consumer(topic string) pulsar.Consumer {
	return s.subscribe(options(topic, pulsar.Exclusive))
}

func (s *stage) send(topic string, values ...string) []pulsar.MessageID {
	producer := s.producer(topic)
	defer producer.Close()
	var ids []pulsar.MessageID
	for _, value := range values {
		message := &pulsar.ProducerMessage{Payload: []byte(value)}
		ids = append(ids, must(producer.Send(context.Background(), message)))
	}
	return ids
}

// Sends all in one entry.
func (s *stage) sendBatch(options pulsar.ProducerOptions, values ...string) []pulsar.MessageID {
	options.BatchingMaxPublishDelay = 10 * time.Second
	options.BatchingMaxMessages = 100
	producer := must(s.client.CreateProducer(options))
	defer producer.Close()
	ids := make([]pulsar.MessageID, len(values))
	for at, value := range values {
		message := &pulsar.ProducerMessage{Payload: []byte(value)}
		producer.SendAsync(context.Background(), message, func(id pulsar.MessageID, _ *pulsar.ProducerMessage, _ error) {
			ids[at] = id
		})
	}
	check(producer.Flush())
	return ids
}

func receive(consumer pulsar.Consumer) pulsar.Message {
	limit, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	return must(consumer.Receive(limit))
}

func text(message pulsar.Message) string { return string(message.Payload()) }

// Receives so many, acknowledges them, and returns their values.
func take(consumer pulsar.Consumer, count int) []string {
	var values []string
	for range count {
		message := receive(consumer)
		values = append(values, text(message))
		check(consumer.Ack(message))
	}
	return values
}

// What comes within a time, acknowledged.
func within(consumer pulsar.Consumer, limit time.Duration) (string, bool) {
	waiting, stop := context.WithTimeout(context.Background(), limit)
	defer stop()
	message, err := consumer.Receive(waiting)
	if err != nil {
		return "", false
	}
	check(consumer.Ack(message))
	return text(message), true
}

// Says what comes although nothing must.
func (s *stage) quiet(consumer pulsar.Consumer) {
	if value, came := within(consumer, quiet); came {
		s.line("more:", value)
	} else {
		s.line("nothing more")
	}
}

// Takes what is left, acknowledges all of it, and says what it was. A last message tells when that
// is all: silence tells nothing on a busy machine.
func (s *stage) rest(topic string) {
	consumer := s.subscribe(options(topic, pulsar.Shared))
	defer consumer.Close()
	last := fmt.Sprint("last ", time.Now().UnixNano())
	s.send(topic, last)
	left := []string{}
	for value := take(consumer, 1)[0]; value != last; value = take(consumer, 1)[0] {
		left = append(left, value)
	}
	s.line("left", left)
}

func until(what string, done func() bool) {
	end := time.Now().Add(patience)
	for !done() {
		if time.Now().After(end) {
			panic(what + ": not in time")
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// A call that must succeed; the path follows /admin/v2/.
func (s *stage) call(method, path, body string) string {
	url := strings.TrimSuffix(s.admin, "/") + "/admin/v2/" + path
	request := must(http.NewRequest(method, url, strings.NewReader(body)))
	request.Header.Set("Content-Type", "application/json")
	answer := must(http.DefaultClient.Do(request))
	defer answer.Body.Close()
	content := must(io.ReadAll(answer.Body))
	if answer.StatusCode >= 300 {
		panic(fmt.Sprintf("%s %s: %d", method, path, answer.StatusCode))
	}
	return string(content)
}

// A call about a topic.
func (s *stage) callTopic(method, topic, tail, body string) string {
	return s.call(method, strings.Replace(topic, "://", "/", 1)+tail, body)
}

func (s *stage) compact(topic string) {
	s.callTopic("PUT", topic, "/compaction", "")
	until("compaction", func() bool {
		return strings.Contains(s.callTopic("GET", topic, "/compaction", ""), "SUCCESS")
	})
}

// Says whether an attempt failed. The texts of errors are the client's own and long.
func (s *stage) refused(what string, err error) {
	if err == nil {
		s.line(what, "accepted")
		return
	}
	for _, word := range []string{"ConsumerBusy", "ProducerBusy", "ProducerFenced", "TopicNotFound", "ServiceNotReady", "NotAllowedError"} {
		if strings.Contains(err.Error(), word) {
			s.line(what, word)
			return
		}
	}
	s.line(what, strings.ReplaceAll(err.Error(), s.run, "RUN"))
}

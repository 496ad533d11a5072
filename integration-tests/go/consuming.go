package main

import (
	"fmt"
	"regexp"
	"slices"
	"time"

	"context"

	"github.com/apache/pulsar-client-go/pulsar"
)

// Steps about who gets what.
var consuming = []step{
	{"shared", shared},
	{"exclusive", exclusive},
	{"failover", failover},
	{"key shared", keyShared},
	{"nacked", nacked},
	{"dead letters", deadLetters},
	{"unsubscribed", unsubscribed},
	{"unloaded", unloaded},
}

func shared(s *stage) {
	topic := s.topic("t")
	with := options(topic, pulsar.Shared)
	with.ReceiverQueueSize = 3
	first, second := s.subscribe(with), s.subscribe(with)
	defer first.Close()
	defer second.Close()
	s.send(topic, "0", "1", "2", "3", "4", "5", "6", "7")
	// Which of them gets one that comes late depends on who was faster to take the earlier ones.
	seen := append(take(first, 1), take(second, 1)...)
	s.line("both have some:", len(seen))
	until("messages", func() bool {
		for _, consumer := range []pulsar.Consumer{first, second} {
			if value, came := within(consumer, 20*time.Millisecond); came {
				seen = append(seen, value)
			}
		}
		return len(seen) >= 8
	})
	slices.Sort(seen)
	s.line("together", seen)
	s.quiet(first)
	s.quiet(second)
}

func exclusive(s *stage) {
	topic := s.topic("t")
	first := s.consumer(topic)
	_, err := s.client.Subscribe(options(topic, pulsar.Exclusive))
	s.refused("a second one", err)
	_, err = s.client.Subscribe(options(topic, pulsar.Shared))
	s.refused("another type", err)
	s.send(topic, "a")
	s.line(take(first, 1))
	first.Close()
	other := s.subscribe(options(topic, pulsar.Shared))
	defer other.Close()
	s.send(topic, "b")
	s.line("as another type", take(other, 1))
}

func failover(s *stage) {
	topic := s.topic("t")
	s.callTopic("PUT", topic, "/partitions", "1")
	with := options(topic, pulsar.Failover)
	with.Name = "a"
	first := s.subscribe(with)
	with.Name = "b"
	second := s.subscribe(with)
	defer second.Close()
	s.send(topic, "0", "1", "2", "3")
	s.line("active", take(first, 2))
	s.quiet(second)
	first.Close()
	s.line("next", take(second, 2))
	s.quiet(second)
}

func keyShared(s *stage) {
	sticky := must(pulsar.NewKeySharedPolicySticky([]int{0, 65535}))
	for at, policy := range []*pulsar.KeySharedPolicy{nil, sticky} {
		topic := s.topic(fmt.Sprint("t", at))
		with := options(topic, pulsar.KeyShared)
		with.KeySharedPolicy = policy
		consumer, err := s.client.Subscribe(with)
		if err != nil {
			s.refused("key shared", err)
			continue
		}
		producer := s.producer(topic)
		for _, message := range []*pulsar.ProducerMessage{{Key: "k", Payload: []byte("a")}, {Key: "l", Payload: []byte("b")}} {
			must(producer.Send(context.Background(), message))
		}
		s.line(take(consumer, 2))
		producer.Close()
		consumer.Close()
	}
}

func nacked(s *stage) {
	topic := s.topic("t")
	s.send(topic, "a", "b", "c")
	with := options(topic, pulsar.Shared)
	with.NackRedeliveryDelay = 100 * time.Millisecond
	consumer := s.subscribe(with)
	defer consumer.Close()
	for range 3 {
		message := receive(consumer)
		if text(message) == "b" {
			consumer.Nack(message)
		} else {
			check(consumer.Ack(message))
		}
	}
	for range 2 {
		message := receive(consumer)
		s.line(text(message), "count", message.RedeliveryCount())
		consumer.Nack(message)
	}
	check(consumer.Ack(receive(consumer)))
	s.quiet(consumer)
}

func deadLetters(s *stage) {
	topic := s.topic("t")
	s.send(topic, "good", "bad")
	dead := s.consumer(topic + "-dead")
	defer dead.Close()
	with := options(topic, pulsar.Shared)
	with.NackRedeliveryDelay = 100 * time.Millisecond
	with.DLQ = &pulsar.DLQPolicy{MaxDeliveries: 3, DeadLetterTopic: topic + "-dead"}
	consumer := s.subscribe(with)
	defer consumer.Close()
	for range 4 {
		message := receive(consumer)
		s.line(text(message), "count", message.RedeliveryCount())
		if text(message) == "bad" {
			consumer.Nack(message)
		} else {
			check(consumer.Ack(message))
		}
	}
	s.line("dead", take(dead, 1))
	s.quiet(consumer)
}

func unsubscribed(s *stage) {
	topic := s.topic("t")
	consumer := s.consumer(topic)
	s.send(topic, "a", "b")
	take(consumer, 2)
	s.line(s.callTopic("GET", topic, "/subscriptions", ""))
	check(consumer.Unsubscribe())
	consumer.Close()
	s.line(s.callTopic("GET", topic, "/subscriptions", ""))
	s.send(topic, "c")
	with := options(topic, pulsar.Exclusive)
	with.SubscriptionInitialPosition = pulsar.SubscriptionPositionLatest
	later := s.subscribe(with)
	defer later.Close()
	s.send(topic, "d")
	s.line(take(later, 1))
	s.quiet(later)
}

var (
	hasProducer = regexp.MustCompile(`"producerName":`)
	hasPermits  = regexp.MustCompile(`"availablePermits":[1-9]`)
)

// Unlike the steps of the other languages this one unloads only when both are attached and nothing is on the way. This client
// forgets that a consumer was closed if that comes at once after the consumer's start, and then waits for ever. And it sends what
// is new before what it has to send again, so that the order changes, or it closes the connection because of the receipts.
func unloaded(s *stage) {
	topic := s.topic("t")
	consumer := s.consumer(topic)
	defer consumer.Close()
	producer := s.producer(topic)
	defer producer.Close()
	var expected, seen []string
	for round := range 3 {
		until("producer and consumer", func() bool {
			stats := s.callTopic("GET", topic, "/stats", "")
			return hasProducer.MatchString(stats) && hasPermits.MatchString(stats)
		})
		for number := range 20 {
			value := fmt.Sprintf("%d.%d", round, number)
			expected = append(expected, value)
			message := &pulsar.ProducerMessage{Payload: []byte(value)}
			producer.SendAsync(context.Background(), message, func(pulsar.MessageID, *pulsar.ProducerMessage, error) {})
		}
		check(producer.Flush())
		s.callTopic("PUT", topic, "/unload", "")
	}
	// What was not yet acknowledged comes again.
	for len(seen) < len(expected) {
		message := receive(consumer)
		if !slices.Contains(seen, text(message)) {
			seen = append(seen, text(message))
		}
		check(consumer.Ack(message))
	}
	s.line("first sights in order:", slices.Equal(seen, expected), len(seen))
}

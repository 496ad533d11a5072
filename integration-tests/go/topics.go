package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
)

// Steps about more than one topic, and finding them.
var topics = []step{
	{"partitioned", partitioned},
	{"several topics", severalTopics},
	{"pattern", pattern},
	{"over http", overHTTP},
	{"refused names", refusedNames},
}

func partitioned(s *stage) {
	topic := s.topic("t")
	s.callTopic("PUT", topic, "/partitions", "3")
	s.line("partitions", len(must(s.client.TopicPartitions(topic))))
	consumer := s.consumer(topic)
	defer consumer.Close()
	producer := s.producer(topic)
	defer producer.Close()
	for number := range 12 {
		key := fmt.Sprintf("k%d", number%4)
		message := &pulsar.ProducerMessage{Key: key, Payload: fmt.Appendf(nil, "%s.%d", key, number)}
		must(producer.Send(context.Background(), message))
	}
	seen := take(consumer, 12)
	// Only the order within a key means something; the sort keeps it.
	slices.SortStableFunc(seen, func(left, right string) int { return strings.Compare(left[:2], right[:2]) })
	s.line(seen)
	s.quiet(consumer)
}

func severalTopics(s *stage) {
	names := []string{s.topic("a"), s.topic("b")}
	with := options("", pulsar.Exclusive)
	with.Topics = names
	consumer := s.subscribe(with)
	defer consumer.Close()
	s.send(names[0], "a1", "a2")
	s.send(names[1], "b1")
	seen := take(consumer, 3)
	slices.Sort(seen)
	s.line(seen)
	s.quiet(consumer)
}

func pattern(s *stage) {
	s.send(s.topic("yes-1"), "one")
	s.send(s.topic("no"), "none")
	with := options("", pulsar.Exclusive)
	with.TopicsPattern = s.topic("yes-") + ".*"
	with.AutoDiscoveryPeriod = time.Second
	consumer := s.subscribe(with)
	defer consumer.Close()
	s.line(take(consumer, 1))
	s.send(s.topic("yes-2"), "two")
	s.line("found later", take(consumer, 1))
	s.quiet(consumer)
}

func overHTTP(s *stage) {
	topic := s.topic("t")
	s.callTopic("PUT", topic, "/partitions", "2")
	client := connect(s.admin)
	defer client.Close()
	schema := pulsar.NewJSONSchema(orderSchema, nil)
	producer := must(client.CreateProducer(pulsar.ProducerOptions{Topic: topic, Schema: schema}))
	defer producer.Close()
	must(producer.Send(context.Background(), &pulsar.ProducerMessage{Value: order{"tea", 1}}))
	with := options(topic, pulsar.Exclusive)
	with.Schema = schema
	consumer := must(client.Subscribe(with))
	defer consumer.Close()
	var seen order
	check(receive(consumer).GetSchemaValue(&seen))
	s.line(seen)
	s.line("partitions", len(must(client.TopicPartitions(topic))))
	with = options("", pulsar.Exclusive)
	with.SubscriptionName = "pattern"
	with.TopicsPattern = topic + ".*"
	found := must(client.Subscribe(with))
	defer found.Close()
	s.line("by pattern", take(found, 1))
}

func refusedNames(s *stage) {
	for _, topic := range []string{"persistent://nobody/default/t", "persistent://public/nothing/t"} {
		_, err := s.client.CreateProducer(pulsar.ProducerOptions{Topic: topic})
		s.refused(topic, err)
	}
}

package main

import "github.com/apache/pulsar-client-go/pulsar"

// Steps about what is acknowledged, and how. Each closes the consumer and looks at what the next one gets.
var acknowledging = []step{
	{"cumulative", cumulative},
	{"receipts of acks", receipts},
	{"batch indexes", batchIndexes},
	{"parts of batches", partsOfBatches},
}

func several(consumer pulsar.Consumer, count int) []pulsar.Message {
	var messages []pulsar.Message
	for range count {
		messages = append(messages, receive(consumer))
	}
	return messages
}

func cumulative(s *stage) {
	topic := s.topic("t")
	s.send(topic, "a", "b", "c", "d")
	consumer := s.consumer(topic)
	check(consumer.AckCumulative(several(consumer, 3)[2]))
	consumer.Close()
	s.rest(topic)
}

func receipts(s *stage) {
	topic := s.topic("t")
	s.send(topic, "a", "b", "c", "d")
	with := options(topic, pulsar.Shared)
	with.AckWithResponse = true
	consumer := s.subscribe(with)
	messages := several(consumer, 4)
	check(consumer.Ack(messages[1]))
	check(consumer.AckIDList([]pulsar.MessageID{messages[0].ID(), messages[2].ID()}))
	s.line("receipts came")
	consumer.Close()
	s.rest(topic)
}

func batchIndexes(s *stage) {
	topic := s.topic("t")
	s.sendBatch(pulsar.ProducerOptions{Topic: topic}, "a", "b", "c", "d")
	with := options(topic, pulsar.Shared)
	with.EnableBatchIndexAcknowledgment = true
	with.AckWithResponse = true
	consumer := s.subscribe(with)
	messages := several(consumer, 4)
	check(consumer.Ack(messages[1]))
	check(consumer.Ack(messages[3]))
	consumer.Close()
	s.rest(topic)
}

// Without such a setting the client keeps an entry back until all of it is acknowledged.
func partsOfBatches(s *stage) {
	topic := s.topic("t")
	s.sendBatch(pulsar.ProducerOptions{Topic: topic}, "a", "b", "c", "d")
	consumer := s.consumer(topic)
	s.line("taken", take(consumer, 3))
	consumer.Close()
	s.rest(topic)
	s.rest(topic)
}

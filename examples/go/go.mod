module longhaul.example/worker

go 1.25

require example.org/longhaul/clients/go v0.1.0

replace example.org/longhaul/clients/go => ../../clients/go

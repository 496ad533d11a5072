module example.org/longhaul/clients/go

go 1.25

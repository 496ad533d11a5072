module longhaul.example/worker

go 1.25

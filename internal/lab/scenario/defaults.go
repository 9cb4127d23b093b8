// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import "time"

// DefaultDriver is the driver of a scenario that declares none.
const DefaultDriver = "lab.csi.clipper.dev"

// applyDefaults fills in what the file left out. It is the only place that does.
func applyDefaults(s *Scenario) {
	set(&s.Timeout, Duration(10*time.Minute))
	set(&s.Cluster.Authorization, AlwaysAllow)
	setTrue(&s.Cluster.SnapshotCRDs)
	set(&s.Cluster.Snapshotter.Workers, 10)
	set(&s.Cluster.Snapshotter.QPS, 100)
	set(&s.Cluster.Snapshotter.Burst, 200)
	set(&s.Cluster.Snapshotter.Timeout, Duration(time.Minute))
	if len(s.Storage.Drivers) == 0 {
		s.Storage.Drivers = []Driver{{Name: DefaultDriver}}
	}
	for i := range s.Storage.Drivers {
		defaultDriver(&s.Storage.Drivers[i])
	}
	for i := range s.Workload {
		defaultNamespace(&s.Workload[i], s.Storage.Drivers[0].Name)
	}
	for i := range s.Commands {
		set(&s.Commands[i].Match, "*")
	}
	set(&s.Server.Engine, EngineParallel)
	setTrue(&s.Floor)
	set(&s.Settle.Quiet, Duration(time.Second))
	set(&s.Settle.Limit, Duration(90*time.Second))
	for i := range s.Events {
		defaultAction(&s.Events[i].Do, s.Storage.Drivers[0].Name)
	}
	if s.Second != nil {
		set(&s.Second.Server.Engine, EngineParallel)
	}
	for i := range s.Events {
		inheritServer(s.Events[i].Do.NextServer, s)
	}
	for i := range s.Then {
		defaultStep(&s.Then[i], s)
	}
}

func defaultDriver(d *Driver) {
	setTrue(&d.SnapshotClass)
	setTrue(&d.SnapshotClassLabel)
	set(&d.DeletionPolicy, "Delete")
	for i := range d.MoreClasses {
		set(&d.MoreClasses[i].DeletionPolicy, "Delete")
	}
	if len(d.Behaviour) == 0 {
		d.Behaviour = []Behaviour{{Cut: Duration(2 * time.Second)}}
	}
	defaultBehaviour(d.Behaviour)
}

func defaultBehaviour(rules []Behaviour) {
	for i := range rules {
		set(&rules[i].Match, "*")
		if throttle := rules[i].Throttle; throttle != nil {
			set(&throttle.Code, "ResourceExhausted")
			set(&throttle.Message, "rate exceeded")
		}
		if fail := rules[i].Fail; fail != nil {
			set(&fail.Code, "Internal")
			set(&fail.Message, "the storage refused")
		}
	}
}

func defaultNamespace(n *Namespace, driver string) {
	for i := range n.PVCs {
		set(&n.PVCs[i].Driver, driver)
		set(&n.PVCs[i].Phase, "Bound")
	}
	for i := range n.Pods {
		set(&n.Pods[i].Driver, driver)
		set(&n.Pods[i].Phase, "Running")
		if len(n.Pods[i].Containers) == 0 {
			n.Pods[i].Containers = []string{"app"}
		}
	}
}

func defaultAction(a *Action, driver string) {
	if a.Behaviour != nil {
		set(&a.Behaviour.Driver, driver)
		defaultBehaviour(a.Behaviour.Rules)
	}
	if a.API != nil {
		set(&a.API.Of, TargetServer)
	}
}

func defaultStep(step *Step, s *Scenario) {
	if step.Restore != nil {
		set(&step.Restore.Name, step.Restore.Backup+"-restore")
		step.Restore.Spec.BackupName = step.Restore.Backup
	}
	set(&step.In, InFirst)
	inheritServer(step.Server, s)
	if step.Run != nil && len(step.Run.Args) > 0 {
		set(&step.Run.Name, step.Run.Args[0])
	}
	if step.Do != nil {
		defaultAction(step.Do, s.Storage.Drivers[0].Name)
		inheritServer(step.Do.NextServer, s)
	}
}

// inheritServer completes a later server from the first.
func inheritServer(server *Server, s *Scenario) {
	if server == nil {
		return
	}
	set(&server.Engine, s.Server.Engine)
	if server.RBAC.Role == "" && server.RBAC.Without == nil {
		server.RBAC = s.Server.RBAC
	}
}

// set gives a field that was left out its default.
func set[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func setTrue(field **bool) {
	if *field == nil {
		yes := true
		*field = &yes
	}
}

"""What KubeVirt calls things: kinds, finalizers, labels, annotations, and the phases of a VMI."""

from typing import Any

from backstay.kube.resource import Resource

Json = dict[str, Any]

NAMESPACE = "kubevirt"
"""Where KubeVirt itself is."""

GROUP = "kubevirt.io"
POOL_GROUP = "pool.kubevirt.io"
SUBRESOURCES = "subresources.kubevirt.io"

VMS = Resource(GROUP, "v1", "virtualmachines", "VirtualMachine")
VMIS = Resource(GROUP, "v1", "virtualmachineinstances", "VirtualMachineInstance")
MIGRATIONS = Resource(
    GROUP, "v1", "virtualmachineinstancemigrations", "VirtualMachineInstanceMigration"
)
SETS = Resource(
    GROUP, "v1", "virtualmachineinstancereplicasets", "VirtualMachineInstanceReplicaSet"
)
POOLS = Resource(POOL_GROUP, "v1beta1", "virtualmachinepools", "VirtualMachinePool")
KUBEVIRTS = Resource(GROUP, "v1", "kubevirts", "KubeVirt")

KEPT_FOR_PODS = "kubevirt.io/foregroundDeleteVirtualMachine"
"""The finalizer that keeps a VMI until none of its pods is left."""

KEPT_FOR_VM = "kubevirt.io/virtualMachineControllerFinalize"
"""The finalizer that keeps a VMI until its VM has taken note of how it ended; a VM has it too."""

APP = "kubevirt.io"
LAUNCHER = "virt-launcher"
HOTPLUG = "hotplug-disk"
CREATED_BY = "kubevirt.io/created-by"
VM_NAME = "vm.kubevirt.io/name"
VMI_ID = "vmi.kubevirt.io/id"
NODE_NAME = "kubevirt.io/nodeName"
DOMAIN = "kubevirt.io/domain"
MIGRATION_JOB = "kubevirt.io/migrationJobUID"
"""On a launcher that is the target of a migration, and says of which."""

MIGRATION_NAME = "kubevirt.io/migrationJobName"
TARGET_NODE = "kubevirt.io/migrationTargetNodeName"
MIGRATION_OF = "kubevirt.io/vmi-name"
EVACUATION = "kubevirt.io/evacuationMigration"
KEPT_FOR_MIGRATION = "kubevirt.io/migrationJobFinalize"
VM_GENERATION = "kubevirt.io/vm-generation"
SCHEDULABLE = "kubevirt.io/schedulable"
HEARTBEAT = "kubevirt.io/heartbeat"
OBSERVED_VERSIONS = {
    "kubevirt.io/latest-observed-api-version": "v1",
    "kubevirt.io/storage-observed-api-version": "v1",
}

COMPUTE = "compute"
"""The container of a launcher pod in which the guest runs."""

PENDING = "Pending"
SCHEDULING = "Scheduling"
SCHEDULED = "Scheduled"
RUNNING = "Running"
SUCCEEDED = "Succeeded"
FAILED = "Failed"

FINAL = frozenset({SUCCEEDED, FAILED})
UNPROCESSED = frozenset({"", PENDING})
HANDED_OVER = frozenset({SCHEDULED, RUNNING})
"""The phases in which the VMI is virt-handler's, and others may patch it but not replace it."""

ALWAYS = "Always"
RERUN_ON_FAILURE = "RerunOnFailure"
MANUAL = "Manual"
ONCE = "Once"
HALTED = "Halted"

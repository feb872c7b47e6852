-- Health of a MultiClusterZooKeeper for Argo CD: docs/how-to/gitops.md.
-- `obj` is the object. The conditions are in docs/reference/conditions.md.

-- Reasons of the condition Progressing that nothing but a change by the user ends.
local failures = {
  ClusterFailed = true,
  ProgressDeadlineExceeded = true,
  NameConflict = true,
  ReservedNamespace = true,
  UnsupportedSpec = true,
  TooLarge = true,
  NoServerId = true,
  ObserversWithoutVoter = true,
  ServerListUnknown = true,
  Internal = true,
}

if obj.metadata.deletionTimestamp ~= nil then
  return { status = "Progressing", message = "The ensemble is being deleted" }
end
local status = obj.status or {}
local conditions = {}
for _, condition in ipairs(status.conditions or {}) do
  conditions[condition.type] = condition
end
local ready, progressing, degraded = conditions.Ready, conditions.Progressing, conditions.Degraded
if status.observedGeneration ~= obj.metadata.generation or ready == nil or progressing == nil then
  return { status = "Progressing", message = "Waiting for the operator" }
end
if failures[progressing.reason] then
  return { status = "Degraded", message = progressing.message }
end
if progressing.reason == "Paused" then
  return { status = "Suspended", message = progressing.message }
end
-- During a rollout one voter at a time restarts, and Degraded is True meanwhile.
if progressing.status == "True" then
  return { status = "Progressing", message = progressing.message }
end
if degraded ~= nil and degraded.status == "True" then
  return { status = "Degraded", message = degraded.message }
end
if ready.status == "True" and progressing.reason == "Done" then
  return { status = "Healthy", message = ready.message }
end
return { status = "Progressing", message = progressing.message }

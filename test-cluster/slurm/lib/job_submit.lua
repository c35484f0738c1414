-- A job_submit plugin as sites have them: it prints to the user, and refuses what site policy forbids.
function slurm_job_submit(job, partitions, uid)
   local name = job.name or ""
   if name:find("chatty", 1, true) then
      slurm.log_user("NOTICE: 12345 node hours are left in your project;maintenance on Friday")
   end
   if name:find("forbidden", 1, true) then
      slurm.log_user("site policy: jobs of this name are not allowed")
      return slurm.ERROR
   end
   return slurm.SUCCESS
end

function slurm_job_modify(job, record, partitions, uid)
   return slurm.SUCCESS
end

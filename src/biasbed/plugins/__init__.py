"""Plug-ins that come with biasbed, a package each. Nothing outside of this folder imports or names one."""
